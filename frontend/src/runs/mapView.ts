/** The part of the memory map that is shown: steps across, bytes upwards. */
export interface MapWindow {
  step0: number;
  step1: number;
  byte0: number;
  byte1: number;
}

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export function wholeMap(steps: number, capacity: number): MapWindow {
  return { step0: 0, step1: Math.max(1, steps), byte0: 0, byte1: Math.max(1, capacity) * 1.04 };
}

export function toStep(window: MapWindow, frame: Frame, x: number): number {
  return window.step0 + ((x - frame.left) / frame.width) * (window.step1 - window.step0);
}

export function toByte(window: MapWindow, frame: Frame, y: number): number {
  return window.byte1 - ((y - frame.top) / frame.height) * (window.byte1 - window.byte0);
}

export function fromStep(window: MapWindow, frame: Frame, step: number): number {
  return frame.left + ((step - window.step0) / (window.step1 - window.step0)) * frame.width;
}

export function fromByte(window: MapWindow, frame: Frame, byte: number): number {
  return frame.top + ((window.byte1 - byte) / (window.byte1 - window.byte0)) * frame.height;
}

/** Zoom around a point of the map; the window never leaves the whole by more than its own size. */
export function zoomMap(window: MapWindow, whole: MapWindow, step: number, byte: number, factorSteps: number, factorBytes: number): MapWindow {
  const [step0, step1] = zoomSpan(window.step0, window.step1, step, factorSteps, whole.step1 - whole.step0, 2);
  const [byte0, byte1] = zoomSpan(window.byte0, window.byte1, byte, factorBytes, whole.byte1 - whole.byte0, 256);
  return clampMap({ step0, step1, byte0, byte1 }, whole);
}

export function panMap(window: MapWindow, whole: MapWindow, steps: number, bytes: number): MapWindow {
  return clampMap(
    { step0: window.step0 + steps, step1: window.step1 + steps, byte0: window.byte0 + bytes, byte1: window.byte1 + bytes },
    whole,
  );
}

/** Move the window as little as needed to show a span of steps and bytes. */
export function revealInMap(window: MapWindow, whole: MapWindow, step0: number, step1: number, byte0: number, byte1: number): MapWindow {
  const steps = step0 < window.step0 || step1 > window.step1 ? (step0 + step1 - window.step0 - window.step1) / 2 : 0;
  const bytes = byte0 < window.byte0 || byte1 > window.byte1 ? (byte0 + byte1 - window.byte0 - window.byte1) / 2 : 0;
  return steps === 0 && bytes === 0 ? window : panMap(window, whole, steps, bytes);
}

function zoomSpan(low: number, high: number, at: number, factor: number, whole: number, least: number): [number, number] {
  const span = Math.min(whole, Math.max(Math.min(least, whole), (high - low) * factor));
  const share = (at - low) / (high - low);
  return [at - share * span, at + (1 - share) * span];
}

function clampMap({ step0, step1, byte0, byte1 }: MapWindow, whole: MapWindow): MapWindow {
  const steps = shift(step0, step1, whole.step0, whole.step1);
  const bytes = shift(byte0, byte1, whole.byte0, whole.byte1);
  return { step0: step0 + steps, step1: step1 + steps, byte0: byte0 + bytes, byte1: byte1 + bytes };
}

function shift(low: number, high: number, least: number, most: number): number {
  if (low < least) return least - low;
  if (high > most) return most - high;
  return 0;
}

/** Round steps for an axis: at most `count` of them, 1-2-5 in decimal or powers of two in bytes. */
export function ticks(low: number, high: number, count: number, binary: boolean): number[] {
  const rough = (high - low) / Math.max(1, count);
  let step: number;
  if (binary) step = 2 ** Math.ceil(Math.log2(Math.max(1, rough)));
  else {
    const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
    step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough) ?? 10 * power;
  }
  const found: number[] = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
