/** The lines that a result is read against, in the order of the legend. */
export interface ReferenceLine {
  key: string;
  title: string;
  value: number;
  colour: string;
}

const TITLES: Record<string, { title: string; colour: string }> = {
  "all-slow": { title: "all in slow memory", colour: "series-slow" },
  greedy: { title: "greedy", colour: "series-greedy" },
  "xla-style": { title: "XLA-style", colour: "series-xla" },
};

export function baseline(baselines: Record<string, number>, name: string): number | null {
  return baselines[name] ?? baselines[name.replaceAll("-", "_")] ?? null;
}

export function referenceLines(baselines: Record<string, number>, bound: number | null): ReferenceLine[] {
  const lines: ReferenceLine[] = [];
  for (const [name, value] of Object.entries(baselines)) {
    const key = name.replaceAll("_", "-");
    const known = TITLES[key];
    lines.push({ key, title: known?.title ?? key, value, colour: known?.colour ?? "series-greedy" });
  }
  lines.sort((a, b) => b.value - a.value);
  if (bound !== null) lines.push({ key: "bound", title: "lower bound", value: bound, colour: "series-bound" });
  return lines;
}
