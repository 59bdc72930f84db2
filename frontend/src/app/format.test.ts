import { expect, test } from "vitest";
import { bytes, count, duration, gap, parseBytes, parsePicoseconds, picoseconds, rate, speedup } from "./format";

test.each([
  [0, "0 ps"],
  [999, "999 ps"],
  [1_500, "1.5 ns"],
  [718_339_000, "718.3 µs"],
  [3_200_000_000, "3.2 ms"],
  [1e12, "1 s"],
  [null, "–"],
])("picoseconds %s are %s", (value, text) => expect(picoseconds(value)).toBe(text));

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [128 * 2 ** 20, "128 MiB"],
  [1.5 * 2 ** 30, "1.5 GiB"],
  [undefined, "–"],
])("bytes %s are %s", (value, text) => expect(bytes(value)).toBe(text));

test.each([
  ["16 MiB", 16 * 2 ** 20],
  ["16777216", 16777216],
  ["1.5 GiB", 1.5 * 2 ** 30],
  ["64k", 65536],
  ["12 B", 12],
  ["sixteen", null],
  ["-3", null],
  ["", null],
])("“%s” is a capacity of %s", (text, value) => expect(parseBytes(text)).toBe(value));

test.each([
  ["3.2 ms", 3_200_000_000],
  ["7 us", 7_000_000],
  ["15", 15],
  ["soon", null],
])("“%s” is a latency of %s", (text, value) => expect(parsePicoseconds(text)).toBe(value));

test.each([
  [0.84, "0.8 s"],
  [42, "42 s"],
  [185, "3 min 05 s"],
  [8040, "2 h 14 min"],
  [null, "–"],
])("%s seconds are %s", (value, text) => expect(duration(value)).toBe(text));

test("ratios, gaps, counts and rates", () => {
  expect(speedup(300, 200)).toBe("1.500×");
  expect(speedup(null, 200)).toBe("–");
  expect(gap(105, 100)).toBe("5.00 %");
  expect(gap(180, 100)).toBe("80.0 %");
  expect(gap(180, null)).toBe("–");
  expect(count(1234567)).toBe("1\u202f234\u202f567");
  expect(rate(12.345)).toBe("12.3");
  expect(rate(4321.7)).toBe("4\u202f322");
});
