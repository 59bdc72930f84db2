/** Numbers as people read them. Each function gives "–" for what is not known. */

export const NONE = "–";

const TIMES: [number, string][] = [
  [1e12, "s"],
  [1e9, "ms"],
  [1e6, "µs"],
  [1e3, "ns"],
  [1, "ps"],
];

/** Picoseconds with four significant digits in the largest unit that leaves at least 1. */
export function picoseconds(ps: number | null | undefined): string {
  if (ps === null || ps === undefined) return NONE;
  if (ps === 0) return "0 ps";
  const [unit, name] = TIMES.find(([size]) => Math.abs(ps) >= size) ?? [1, "ps"];
  return `${significant(ps / unit, 4)} ${name}`;
}

const BYTES: [number, string][] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return NONE;
  const found = BYTES.find(([size]) => Math.abs(count) >= size);
  if (!found) return `${count} B`;
  return `${significant(count / found[0], 4)} ${found[1]}`;
}

/** A limit as it was set: whole decimal megabytes stay that. */
export function limit(count: number): string {
  return count % 1e6 === 0 ? `${count / 1e6} MB` : bytes(count);
}

/** Read "32 MiB", "33554432", "1.5GiB" or "64k" as bytes; null where it is no size. */
export function parseBytes(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:([kmgt])i?b?|b|bytes)?\s*$/i.exec(text);
  if (!match) return null;
  const exponent = match[2] ? "kmgt".indexOf(match[2].toLowerCase()) + 1 : 0;
  const value = Number(match[1]) * 2 ** (10 * exponent);
  return Number.isSafeInteger(Math.round(value)) ? Math.round(value) : null;
}

/** Read "3.5 ms" or a bare number of picoseconds; null where it is no time. */
export function parsePicoseconds(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*(s|ms|µs|μs|us|ns|ps)?\s*$/i.exec(text);
  if (!match) return null;
  const unit = (match[2] ?? "ps").toLowerCase().replace("μ", "µ").replace("us", "µs");
  const size = TIMES.find(([, name]) => name === unit)?.[0] ?? 1;
  const value = Math.round(Number(match[1]) * size);
  return Number.isSafeInteger(value) ? value : null;
}

/** Whole numbers with thin spaces between thousands. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  const [whole = "", fraction] = String(value).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** Seconds as "0.8 s", "42 s", "3 min 05 s" or "2 h 14 min". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** How many times faster `value` is than `reference`. */
export function speedup(reference: number | null | undefined, value: number | null | undefined): string {
  if (!reference || !value) return NONE;
  return `${(reference / value).toFixed(3)}×`;
}

/** How far `value` lies above the bound, in percent of the bound. */
export function gap(value: number | null | undefined, bound: number | null | undefined): string {
  if (value === null || value === undefined || !bound) return NONE;
  return `${((100 * (value - bound)) / bound).toFixed(value - bound < bound / 10 ? 2 : 1)} %`;
}

export function rate(perSecond: number | null | undefined): string {
  if (perSecond === null || perSecond === undefined || !Number.isFinite(perSecond)) return NONE;
  return perSecond >= 100 ? count(Math.round(perSecond)) : significant(perSecond, 3);
}

export function when(iso: string | null | undefined): string {
  if (!iso) return NONE;
  const date = new Date(iso);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  return today ? time : `${date.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${time}`;
}

export function significant(value: number, digits: number): string {
  const text = value.toPrecision(digits);
  const plain = text.includes("e") ? String(Number(text)) : text;
  return plain.includes(".") ? plain.replace(/\.?0+$/, "") : plain;
}
