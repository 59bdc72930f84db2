/** The part of JSON Schema that pydantic writes for search settings, read for a form. */
export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  anyOf?: JsonSchema[];
  allOf?: JsonSchema[];
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
}

export interface Field {
  name: string;
  title: string;
  description: string;
  kind: "integer" | "number" | "boolean" | "choice" | "text";
  choices: unknown[];
  nullable: boolean;
  initial: unknown;
  least?: number;
  most?: number;
  /** The bounds themselves are not allowed. */
  openLeast: boolean;
  openMost: boolean;
}

/** Fields in the schema's order; constants (such as `method`) are left out. */
export function fieldsOf(schema: JsonSchema, defaults: Record<string, unknown>): Field[] {
  const fields: Field[] = [];
  for (const [name, raw] of Object.entries(schema.properties ?? {})) {
    const { inner, nullable } = unwrap(raw, schema);
    if (inner.const !== undefined) continue;
    const least = inner.minimum ?? inner.exclusiveMinimum;
    const most = inner.maximum ?? inner.exclusiveMaximum;
    fields.push({
      name,
      title: raw.title ?? inner.title ?? name,
      description: raw.description ?? inner.description ?? "",
      kind: inner.enum ? "choice" : kindOf(inner),
      choices: inner.enum ?? [],
      nullable,
      initial: name in defaults ? defaults[name] : (raw.default ?? null),
      ...(least !== undefined && { least }),
      ...(most !== undefined && { most }),
      openLeast: inner.minimum === undefined && inner.exclusiveMinimum !== undefined,
      openMost: inner.maximum === undefined && inner.exclusiveMaximum !== undefined,
    });
  }
  return fields;
}

/** Why the value is not allowed, or null. */
export function fieldError(field: Field, value: unknown): string | null {
  if (value === null || value === undefined || value === "") return field.nullable ? null : "This is needed.";
  if (field.kind !== "integer" && field.kind !== "number") return null;
  if (typeof value !== "number" || !Number.isFinite(value)) return "This must be a number.";
  if (field.kind === "integer" && !Number.isInteger(value)) return "This must be a whole number.";
  const { least, most } = field;
  if (least !== undefined && (field.openLeast ? value <= least : value < least)) return `${field.openLeast ? "More than" : "At least"} ${least}.`;
  if (most !== undefined && (field.openMost ? value >= most : value > most)) return `${field.openMost ? "Less than" : "At most"} ${most}.`;
  return null;
}

export function rangeText({ least, most, openLeast, openMost }: Field): string {
  const low = least === undefined ? "" : `${openLeast ? "above" : "from"} ${least}`;
  const high = most === undefined ? "" : `${openMost ? "below" : "to"} ${most}`;
  return [low, high].filter(Boolean).join(" ");
}

function unwrap(schema: JsonSchema, root: JsonSchema): { inner: JsonSchema; nullable: boolean } {
  if (schema.$ref) return unwrap(root.$defs?.[schema.$ref.split("/").at(-1) ?? ""] ?? {}, root);
  if (schema.allOf?.length === 1) return unwrap(schema.allOf[0]!, root);
  if (schema.anyOf) {
    const others = schema.anyOf.filter((option) => option.type !== "null");
    return { inner: unwrap(others[0] ?? {}, root).inner, nullable: others.length < schema.anyOf.length };
  }
  return { inner: schema, nullable: false };
}

function kindOf(schema: JsonSchema): Field["kind"] {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "integer" || type === "number" || type === "boolean") return type;
  return "text";
}
