import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import { count, duration, picoseconds } from "../app/format";
import { colour, useTheme } from "../app/theme";
import { useSize } from "../viewer/useSize";
import { referenceLines, type ReferenceLine } from "./baselines";
import type { Series } from "./runView";

interface Props {
  series: Series;
  /** Changes when the series has grown. */
  version: number;
  baselines: Record<string, number>;
  bound: number | null;
}

/** Best latency so far against evaluations or time, with the baselines and the bound as lines. */
export function RunChart({ series, version, baselines, bound }: Props) {
  const [axis, setAxis] = useState<"evaluations" | "seconds">("evaluations");
  const [close, setClose] = useState(true);
  const lines = useMemo(() => referenceLines(baselines, bound), [baselines, bound]);
  return (
    <section className="card" aria-label="Best latency">
      <div className="panel-head">
        <h2>Best latency</h2>
        <div className="row">
          <div className="segmented" role="group" aria-label="Horizontal axis">
            <button type="button" aria-pressed={axis === "evaluations"} onClick={() => setAxis("evaluations")}>
              Evaluations
            </button>
            <button type="button" aria-pressed={axis === "seconds"} onClick={() => setAxis("seconds")}>
              Time
            </button>
          </div>
          <div className="segmented" role="group" aria-label="Vertical range">
            <button type="button" aria-pressed={!close} title="Show all reference lines" onClick={() => setClose(false)}>
              All lines
            </button>
            <button type="button" aria-pressed={close} title="Leave out all in slow memory" onClick={() => setClose(true)}>
              Close up
            </button>
          </div>
        </div>
      </div>
      <Plot x={series[axis]} y={series.best} version={version} axis={axis} close={close} lines={lines} />
      <div className="legend pad">
        <span>
          <span className="swatch" style={{ background: "var(--series-best)" }} />
          best of this run
        </span>
        {lines.map(({ key, title, value, colour: name }) => (
          <span key={key} className="number">
            <span className="swatch" style={{ background: `var(--${name})` }} />
            {title} {picoseconds(value)}
          </span>
        ))}
      </div>
    </section>
  );
}

interface PlotProps {
  x: number[];
  y: number[];
  version: number;
  axis: "evaluations" | "seconds";
  close: boolean;
  lines: ReferenceLine[];
}

function Plot({ x, y, version, axis, close, lines }: PlotProps) {
  const area = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const size = useSize(area);
  const theme = useTheme();
  const [under, setUnder] = useState("");
  const shown = useRef({ close, lines });
  shown.current = { close, lines };

  useEffect(() => {
    const grid = { stroke: colour("grid"), width: 1 };
    const ink = colour("muted");
    const font = `12px ${colour("sans")}`;
    const chart = new uPlot(
      {
        width: 100,
        height: 100,
        legend: { show: false },
        cursor: { y: false, drag: { setScale: false } },
        scales: {
          x: { time: false, range: (_, least, most) => (most > least ? [Math.min(0, least), most * 1.02] : [0, Math.max(1, most)]) },
          y: { range: (_, least, most) => yRange(least, most, shown.current) },
        },
        series: [
          {},
          {
            stroke: colour("series-best"),
            width: 2.5,
            paths: uPlot.paths.stepped!({ align: 1 }),
            points: { show: (self) => (self.data[0]?.length ?? 0) < 60, size: 6, fill: colour("series-best") },
          },
        ],
        axes: [
          {
            stroke: ink,
            font,
            grid,
            ticks: grid,
            values: (_, splits) => splits.map((value) => (axis === "seconds" ? duration(value) : count(value))),
          },
          { stroke: ink, font, grid, ticks: grid, size: 84, values: (self, splits) => splits.map((value) => (self.data[0].length > 0 || shown.current.lines.length > 0 ? picoseconds(value) : "")) },
        ],
        hooks: {
          draw: [(self) => drawLines(self, shown.current.lines)],
          setCursor: [
            (self) => {
              const at = self.cursor.idx;
              const best = at === null || at === undefined ? null : self.data[1]?.[at];
              const where = at === null || at === undefined ? null : self.data[0]?.[at];
              setUnder(best == null || where == null ? "" : `${picoseconds(best)} after ${axis === "seconds" ? duration(where) : `${count(where)} evaluations`}`);
            },
          ],
        },
      },
      [[], []],
      area.current!,
    );
    plot.current = chart;
    return () => {
      chart.destroy();
      plot.current = null;
    };
  }, [axis, theme]);

  useEffect(() => {
    if (size.width > 0) plot.current?.setSize({ width: size.width, height: size.height });
  }, [size, axis, theme]);

  useEffect(() => {
    plot.current?.setData([x.slice(), y.slice()]);
  }, [x, y, version, axis, close, lines, theme]);

  const best = y.at(-1);
  return (
    <div className="chart-frame">
      <div
        className="chart"
        ref={area}
        role="img"
        aria-label={best === undefined ? "No result yet" : `Best latency ${picoseconds(best)} after ${x.length} points`}
        data-testid="chart"
        data-points={x.length}
      />
      <p className="chart-readout small number" aria-hidden="true">
        {under || (x.length === 0 ? "Waiting for the first result…" : "")}
      </p>
    </div>
  );
}

function yRange(least: number | null, most: number | null, { close, lines }: { close: boolean; lines: ReferenceLine[] }): [number, number] {
  let low = least ?? Infinity;
  let high = most ?? -Infinity;
  for (const { key, value } of lines) {
    if (close && key === "all-slow" && Number.isFinite(high)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const room = Math.max((high - low) * 0.08, high * 0.0005, 1);
  return [low - room, high + room];
}

function drawLines(chart: uPlot, lines: ReferenceLine[]): void {
  const { ctx: context } = chart;
  const { left, top, width, height } = chart.bbox;
  const ratio = uPlot.pxRatio;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.font = `${12 * ratio}px ${colour("sans")}`;
  context.textAlign = "right";
  context.textBaseline = "bottom";
  let lastLabel = -Infinity;
  for (const { title, value, colour: name } of lines) {
    const y = Math.round(chart.valToPos(value, "y", true)) + 0.5;
    if (y < top - 1 || y > top + height + 1) continue;
    context.strokeStyle = colour(name);
    context.lineWidth = 1.5 * ratio;
    context.setLineDash(name === "series-bound" ? [2 * ratio, 3 * ratio] : [7 * ratio, 4 * ratio]);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.stroke();
    // Labels that would lie on each other go below their line, or are left to the legend.
    const above = y - 3 * ratio;
    const below = y + 16 * ratio;
    const at = above - lastLabel > 14 * ratio && above - 14 * ratio > top ? above : below - lastLabel > 14 * ratio && below < top + height ? below : null;
    if (at !== null) {
      context.fillStyle = colour(name);
      context.fillText(title, left + width - 6 * ratio, at);
      lastLabel = at;
    }
  }
  context.restore();
}
