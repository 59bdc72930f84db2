import { fieldError, rangeText, type Field } from "./schema";

interface Props {
  fields: Field[];
  value: Record<string, unknown>;
  onChange: (value: Record<string, unknown>) => void;
}

/** A form for a method's settings, made from their JSON Schema. */
export function SchemaForm({ fields, value, onChange }: Props) {
  return fields.map((field) => (
    <SettingField key={field.name} field={field} value={value[field.name]} onChange={(next) => onChange({ ...value, [field.name]: next })} />
  ));
}

function SettingField({ field, value, onChange }: { field: Field; value: unknown; onChange: (value: unknown) => void }) {
  const id = `setting-${field.name}`;
  const error = fieldError(field, value);
  const changed = value !== field.initial;
  const range = rangeText(field);
  const shared = { id, "aria-invalid": error !== null, "aria-describedby": `${id}-hint` };
  const reset = changed && (
    <button type="button" className="link small" onClick={() => onChange(field.initial)}>
      reset to {field.initial === null ? "empty" : String(field.initial)}
    </button>
  );
  const hint = (
    <p className="hint" id={`${id}-hint`}>
      {field.description}
      {range && ` (${range})`}
    </p>
  );
  if (field.kind === "boolean") {
    return (
      <div className="field check">
        <input {...shared} type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />
        <div className="head">
          <label htmlFor={id}>{field.title}</label>
          {reset}
        </div>
        {hint}
      </div>
    );
  }
  return (
    <div className="field">
      <div className="head">
        <label htmlFor={id}>{field.title}</label>
        {reset}
      </div>
      {field.kind === "choice" ? (
        <select {...shared} value={String(value)} onChange={(event) => onChange(field.choices.find((choice) => String(choice) === event.target.value))}>
          {field.choices.map((choice) => (
            <option key={String(choice)}>{String(choice)}</option>
          ))}
        </select>
      ) : field.kind === "text" ? (
        <input {...shared} type="text" value={value === null || value === undefined ? "" : String(value)} onChange={(event) => onChange(event.target.value)} />
      ) : (
        <input
          {...shared}
          type="number"
          step={field.kind === "integer" ? 1 : "any"}
          min={field.least}
          max={field.most}
          placeholder={field.nullable ? "empty" : undefined}
          value={typeof value === "number" ? value : ""}
          onChange={(event) => onChange(event.target.value === "" ? null : event.target.valueAsNumber)}
        />
      )}
      {hint}
      {error && <p className="error">{error}</p>}
    </div>
  );
}
