import { keepPreviousData, useMutation, useQuery as useData } from "@tanstack/react-query";
import { useDeferredValue, useRef, useState } from "react";
import { createRun, getDevices, getMethods, getPreview, type Budget, type Device, type Graph, type Method, type RunIn } from "../api/client";
import { bytes, count, gap, parseBytes, parsePicoseconds, picoseconds, speedup } from "../app/format";
import { ErrorBox } from "../app/messages";
import { navigate } from "../app/router";
import { fieldError, fieldsOf, type JsonSchema } from "./schema";
import { SchemaForm } from "./SchemaForm";

const OWN_DEVICE = "own";

export function SearchForm({ graph }: { graph: Graph }) {
  const devices = useData({ queryKey: ["devices"], queryFn: getDevices, staleTime: Infinity });
  const methods = useData({ queryKey: ["methods"], queryFn: getMethods, staleTime: 60_000 });
  const failed = devices.error ?? methods.error;
  if (failed) return <ErrorBox error={failed} />;
  if (!devices.data || !methods.data) return <p className="muted">Loading…</p>;
  if (graph.state === "scheduling") return <p className="muted">The module is being scheduled; the search can start right after.</p>;
  if (graph.state === "failed") return <p className="muted">This module cannot be searched: it could not be read.</p>;
  return <Form key={graph.id} graph={graph} devices={devices.data} methods={methods.data} />;
}

/** Exact text for a capacity: in MiB or KiB where that is a whole number. */
function capacityText(size: number): string {
  if (size % 2 ** 20 === 0) return `${size / 2 ** 20} MiB`;
  if (size % 2 ** 10 === 0) return `${size / 2 ** 10} KiB`;
  return `${size} B`;
}

function Form({ graph, devices, methods }: { graph: Graph; devices: Device[]; methods: Method[] }) {
  const [deviceName, setDeviceName] = useState(graph.suggested?.device ?? devices[0]?.name ?? OWN_DEVICE);
  const [toml, setToml] = useState(devices.find(({ name }) => name === deviceName)?.toml ?? "");
  const device = devices.find(({ name }) => name === deviceName);
  const [capacity, setCapacity] = useState(graph.suggested ? capacityText(graph.suggested.capacity) : "");
  const [methodName, setMethodName] = useState(methods.find(({ method }) => method === "annealing")?.method ?? methods[0]?.method ?? "");
  const method = methods.find((candidate) => candidate.method === methodName);
  const [settings, setSettings] = useState<Record<string, Record<string, unknown>>>({});
  const [evaluations, setEvaluations] = useState("");
  const [seconds, setSeconds] = useState("30");
  const [target, setTarget] = useState("");
  const [seed, setSeed] = useState("0");
  const key = useRef<{ body: string; key: string } | null>(null);

  const capacityBytes = capacity.trim() === "" ? null : parseBytes(capacity);
  const capacityError =
    capacity.trim() !== "" && (capacityBytes === null || capacityBytes < 1) ? "Give a size such as 16 MiB, 512 KiB or 16777216." : null;
  const wanted = useDeferredValue(capacityError ? null : capacityBytes);
  const preview = useData({
    queryKey: ["preview", graph.id, deviceName, wanted],
    queryFn: ({ signal }) => getPreview(graph.id, deviceName, wanted, signal),
    enabled: deviceName !== OWN_DEVICE && capacityError === null,
    staleTime: 300_000,
    placeholderData: keepPreviousData,
  });

  const fields = method ? fieldsOf(method.schema as JsonSchema, method.defaults as Record<string, unknown>) : [];
  const defaults = Object.fromEntries(fields.map((field) => [field.name, field.initial]));
  const value = { ...defaults, ...settings[methodName] };
  const changed = fields.some((field) => value[field.name] !== field.initial);
  const number = (text: string) => (text.trim() === "" ? null : Number(text));
  const targetPs = target.trim() === "" ? null : parsePicoseconds(target);
  const budget: Budget = { evaluations: number(evaluations), seconds: number(seconds), target: targetPs };
  const problems: Record<string, string | null> = {
    evaluations: budget.evaluations != null && !(Number.isInteger(budget.evaluations) && budget.evaluations >= 1) ? "A whole number, at least 1." : null,
    seconds: budget.seconds != null && !(budget.seconds > 0) ? "More than 0." : null,
    target: target.trim() !== "" && targetPs === null ? "Such as 3.2 ms." : null,
    budget: budget.evaluations == null && budget.seconds == null ? "Say when to stop: evaluations or seconds. A target alone may never be reached." : null,
    seed: /^\d{1,10}$/.test(seed.trim()) && Number(seed) < 2 ** 32 ? null : "0 to 4294967295.",
  };
  const valid =
    method !== undefined &&
    capacityError === null &&
    Object.values(problems).every((problem) => problem === null) &&
    fields.every((field) => fieldError(field, value[field.name]) === null);

  const start = useMutation({
    mutationFn: () => {
      const body: RunIn = {
        graph: graph.id,
        device: deviceName === OWN_DEVICE ? null : deviceName,
        device_toml: deviceName === OWN_DEVICE ? toml : null,
        capacity: capacityBytes,
        settings: { method: methodName, ...value },
        budget,
        seed: Number(seed),
      };
      // Pressing again after a lost answer must not start a second run; a changed form is a new one.
      const text = JSON.stringify(body);
      if (key.current?.body !== text) key.current = { body: text, key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
      return createRun(body, key.current.key);
    },
    onSuccess: (run) => navigate(`/runs/${run.id}`),
  });

  const suggested = preview.data?.suggested_capacity ?? graph.suggested?.capacity ?? null;
  return (
    <form
      className="stack"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (valid) start.mutate();
      }}
    >
      <p className="small muted">
        Search which buffers to keep in fast memory, when to copy them there, and where. Time is simulated by a roofline
        model of the device; lower is better.
      </p>
      <div className="field">
        <label htmlFor="device">Device</label>
        <select
          id="device"
          value={deviceName}
          onChange={(event) => {
            const next = devices.find(({ name }) => name === event.target.value);
            setDeviceName(event.target.value);
            setCapacity("");
            if (next) setToml(next.toml);
          }}
        >
          {devices.map(({ name, title }) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
          <option value={OWN_DEVICE}>Your own (TOML)…</option>
        </select>
        {device && <DeviceFacts device={device} />}
      </div>
      {deviceName === OWN_DEVICE && (
        <div className="field">
          <label htmlFor="toml">Device description</label>
          <textarea id="toml" rows={14} spellCheck={false} value={toml} onChange={(event) => setToml(event.target.value)} />
          <p className="hint">Starts as a copy of the device chosen before. The server checks each key.</p>
        </div>
      )}
      <div className="field">
        <label htmlFor="capacity">Fast memory to use</label>
        <input
          id="capacity"
          type="text"
          placeholder={device ? `${capacityText(device.capacity_bytes)} (all of the device’s)` : "as in the description"}
          value={capacity}
          aria-invalid={capacityError !== null}
          aria-describedby="capacity-hint"
          onChange={(event) => setCapacity(event.target.value)}
        />
        {capacityError && <p className="error">{capacityError}</p>}
        <p className="hint" id="capacity-hint">
          In MiB, KiB or bytes.{" "}
          {device && capacityBytes !== null && capacityBytes !== device.capacity_bytes && (
            <>
              <button type="button" className="link" onClick={() => setCapacity("")}>
                Use the device’s {bytes(device.capacity_bytes)}
              </button>
              {". "}
            </>
          )}
          {suggested !== null && suggested !== (capacityBytes ?? device?.capacity_bytes) && (
            <button type="button" className="link" onClick={() => setCapacity(capacityText(suggested))}>
              Use {bytes(suggested)}, which leaves something to search
            </button>
          )}
          {suggested !== null && suggested === capacityBytes && device && suggested < device.capacity_bytes && "This size was suggested: it leaves something to search."}
        </p>
      </div>
      {deviceName !== OWN_DEVICE && (
        <div className="box info small" aria-live="polite" data-testid="preview">
          {preview.isError ? (
            <ErrorBox error={preview.error} />
          ) : preview.data ? (
            preview.data.fits ? (
              <div className="stack tight">
                <p>
                  <strong>Everything fits: nothing to search.</strong> At its peak the program holds {bytes(preview.data.peak_bytes)}, and
                  there are {bytes(preview.data.capacity_bytes)}.
                </p>
                <div>
                  <button type="button" onClick={() => setCapacity(capacityText(preview.data.suggested_capacity))}>
                    Try with {bytes(preview.data.suggested_capacity)}
                  </button>
                </div>
              </div>
            ) : (
              <dl className="facts number">
                <dt>Everything in slow memory</dt>
                <dd>{picoseconds(preview.data.all_slow_ps)}</dd>
                <dt>Greedy mapping</dt>
                <dd>
                  {picoseconds(preview.data.greedy_ps)} ({speedup(preview.data.all_slow_ps, preview.data.greedy_ps)})
                </dd>
                <dt>No mapping can be below</dt>
                <dd>{picoseconds(preview.data.lower_bound_ps)}</dd>
                <dt>Left to win over greedy</dt>
                <dd>at most {gap(preview.data.greedy_ps, preview.data.lower_bound_ps)}</dd>
                <dt>Peak of live buffers</dt>
                <dd>{bytes(preview.data.peak_bytes)}</dd>
              </dl>
            )
          ) : (
            "Pricing the module on this device…"
          )}
        </div>
      )}
      <fieldset>
        <legend>Method</legend>
        <div className="field">
          <select aria-label="Method" id="method" value={methodName} onChange={(event) => setMethodName(event.target.value)}>
            {methods.map(({ method: name, title }) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
          {method && <p className="hint">{method.summary}</p>}
        </div>
        <SchemaForm fields={fields} value={value} onChange={(next) => setSettings({ ...settings, [methodName]: next })} />
        {changed && (
          <div>
            <button type="button" className="link small" onClick={() => setSettings({ ...settings, [methodName]: {} })}>
              Reset all settings of this method
            </button>
          </div>
        )}
      </fieldset>
      <fieldset>
        <legend>Stop after</legend>
        <div className="three">
          <TextField id="evaluations" label="Evaluations" value={evaluations} onChange={setEvaluations} placeholder="no limit" error={problems.evaluations} />
          <TextField id="seconds" label="Seconds" value={seconds} onChange={setSeconds} placeholder="no limit" error={problems.seconds} />
          <TextField id="target" label="Latency" value={target} onChange={setTarget} placeholder="e.g. 3.2 ms" error={problems.target} />
        </div>
        {problems.budget && <p className="small" role="alert">{problems.budget}</p>}
        <TextField
          id="seed"
          label="Seed"
          value={seed}
          onChange={setSeed}
          error={problems.seed}
          hint="The same seed and number of evaluations give the same result, bit for bit."
        />
      </fieldset>
      {start.isError && <ErrorBox error={start.error} />}
      <button type="submit" className="primary" data-testid="start-run" disabled={!valid || start.isPending}>
        {start.isPending ? "Starting…" : "Start the search"}
      </button>
    </form>
  );
}

interface TextFieldProps {
  id: string;
  label: string;
  value: string;
  onChange: (value: string) => void;
  placeholder?: string;
  error: string | null | undefined;
  hint?: string;
}

function TextField({ id, label, value, onChange, placeholder, error, hint }: TextFieldProps) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} type="text" inputMode="decimal" value={value} placeholder={placeholder} aria-invalid={error !== null} onChange={(event) => onChange(event.target.value)} />
      {hint && <p className="hint">{hint}</p>}
      {error && <p className="error">{error}</p>}
    </div>
  );
}

function DeviceFacts({ device }: { device: Device }) {
  const rows: [string, string, string][] = [
    ["Compute", `${count(device.flops_per_second / 1e12)} Tflop/s`, "flops_per_second"],
    ["Slow memory", `${count(device.slow_bytes_per_second / 1e9)} GB/s`, "slow_bytes_per_second"],
    ["Fast memory, read", `${count(device.fast_read_bytes_per_second / 1e9)} GB/s`, "fast_read_bytes_per_second"],
    ["Fast memory, write", `${count(device.fast_write_bytes_per_second / 1e9)} GB/s`, "fast_write_bytes_per_second"],
    ["Copies (DMA)", `${count(device.dma_bytes_per_second / 1e9)} GB/s`, "dma_bytes_per_second"],
    ["Start of a copy", picoseconds(device.dma_latency_ps), "dma_latency_ps"],
    ["Fast memory, size", bytes(device.capacity_bytes), "capacity_bytes"],
    ["Alignment", bytes(device.alignment_bytes), "alignment_bytes"],
  ];
  return (
    <details className="notes">
      <summary>Figures of this device and their sources</summary>
      <dl className="facts small">
        {rows.map(([title, text, name]) => (
          <DeviceFact key={name} title={title} text={text} source={device.sources[name]} />
        ))}
      </dl>
    </details>
  );
}

function DeviceFact({ title, text, source }: { title: string; text: string; source: string | undefined }) {
  return (
    <>
      <dt>{title}</dt>
      <dd>
        <span className="number">{text}</span>
        {source && <div className="muted">{source}</div>}
      </dd>
    </>
  );
}
