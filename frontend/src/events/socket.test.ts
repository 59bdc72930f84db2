import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { EventClient, type EventFrame, type RunListener, type SocketLike } from "./socket";

class FakeSocket implements SocketLike {
  readyState = 0;
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  sent: Record<string, unknown>[] = [];
  closed = false;

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(): void {
    this.closed = true;
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  drop(code = 1006): void {
    this.readyState = 3;
    this.onclose?.({ code });
  }

  event(seq: number, run = "r"): void {
    this.frame({ v: 1, run, seq, kind: "log", data: { message: String(seq) } });
  }

  frame(frame: Record<string, unknown>): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
}

let sockets: FakeSocket[];
let client: EventClient;
let seen: number[];
let resets: number;
let denied: number;

const listener: RunListener = {
  onEvent: (frame: EventFrame) => seen.push(frame.seq),
  onReset: () => resets++,
  onDenied: () => denied++,
};

beforeEach(() => {
  vi.useFakeTimers();
  sockets = [];
  seen = [];
  resets = 0;
  denied = 0;
  client = new EventClient(
    () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    () => 1,
  );
});

afterEach(() => {
  vi.useRealTimers();
});

function last(): FakeSocket {
  return sockets.at(-1)!;
}

test("it asks for what comes after the given number, and passes events on in order", () => {
  client.subscribe("r", 4, listener);
  last().open();
  expect(last().sent).toEqual([{ type: "subscribe", run: "r", after: 4 }]);
  last().event(5);
  last().event(6);
  expect(seen).toEqual([5, 6]);
  expect(client.connection).toBe("live");
});

test("it drops what it has seen before", () => {
  client.subscribe("r", 0, listener);
  last().open();
  for (const seq of [1, 2, 2, 1, 3]) last().event(seq);
  expect(seen).toEqual([1, 2, 3]);
  expect(client.doubles).toBe(2);
});

test("a gap asks for a replay once and lets nothing through until it comes", () => {
  client.subscribe("r", 0, listener);
  last().open();
  last().event(1);
  last().event(4);
  last().event(5);
  expect(seen).toEqual([1]);
  expect(client.gaps).toBe(1);
  expect(last().sent.slice(1)).toEqual([
    { type: "unsubscribe", run: "r" },
    { type: "subscribe", run: "r", after: 1 },
  ]);
  for (const seq of [2, 3, 4, 5, 6]) last().event(seq);
  expect(seen).toEqual([1, 2, 3, 4, 5, 6]);
});

test("it reconnects after a growing pause and resumes where it was", () => {
  client.subscribe("r", 0, listener);
  last().open();
  last().event(1);
  last().drop();
  expect(client.connection).toBe("reconnecting");
  vi.advanceTimersByTime(499);
  expect(sockets.length).toBe(1);
  vi.advanceTimersByTime(1);
  expect(sockets.length).toBe(2);
  last().drop();
  vi.advanceTimersByTime(999);
  expect(sockets.length).toBe(2);
  vi.advanceTimersByTime(1);
  last().open();
  expect(last().sent).toEqual([{ type: "subscribe", run: "r", after: 1 }]);
  last().event(2);
  expect(seen).toEqual([1, 2]);
});

test("pauses end at fifteen seconds, and a healthy connection makes them short again", () => {
  client.subscribe("r", 0, listener);
  for (let i = 0; i < 8; i++) {
    last().drop();
    vi.advanceTimersByTime(15_000);
  }
  expect(sockets.length).toBe(9);
  last().open();
  vi.advanceTimersByTime(20_000);
  last().frame({ kind: "heartbeat", time: "now" });
  vi.advanceTimersByTime(20_000);
  last().drop();
  vi.advanceTimersByTime(500);
  expect(sockets.length).toBe(10);
});

test("silence makes it stale, a heartbeat live again, and more silence a new connection", () => {
  client.subscribe("r", 0, listener);
  last().open();
  vi.advanceTimersByTime(35_000);
  expect(client.connection).toBe("stale");
  last().frame({ kind: "heartbeat", time: "now" });
  expect(client.connection).toBe("live");
  vi.advanceTimersByTime(45_000);
  expect(client.connection).toBe("reconnecting");
  expect(sockets[0]!.closed).toBe(true);
  vi.advanceTimersByTime(500);
  expect(sockets.length).toBe(2);
});

test("a reset is handed on, and the new subscription starts where the page says", () => {
  client.subscribe("r", 0, listener);
  last().open();
  last().frame({ kind: "reset", run: "r", last_seq: 9000 });
  expect(resets).toBe(1);
  client.subscribe("r", 9000, listener);
  last().event(9001);
  expect(seen).toEqual([9001]);
});

test("denied runs and ended sessions are told, and the latter are not tried again", () => {
  client.subscribe("r", 0, listener);
  last().open();
  last().frame({ kind: "denied", run: "r" });
  expect(denied).toBe(1);
  last().drop(4401);
  expect(denied).toBe(2);
  vi.advanceTimersByTime(60_000);
  expect(sockets.length).toBe(1);
});

test("one socket serves several runs, and closes a while after the last has gone", () => {
  const stopFirst = client.subscribe("a", 0, listener);
  const stopSecond = client.subscribe("b", 7, { ...listener, onEvent: () => seen.push(-1) });
  last().open();
  expect(last().sent.length).toBe(2);
  last().event(8, "b");
  last().event(1, "a");
  expect(seen).toEqual([-1, 1]);
  stopFirst();
  stopSecond();
  expect(last().closed).toBe(false);
  vi.advanceTimersByTime(5_000);
  expect(last().closed).toBe(true);
  expect(client.connection).toBe("offline");
});

test("the network coming back cuts the pause short", () => {
  client.subscribe("r", 0, listener);
  last().drop();
  client.wake();
  expect(sockets.length).toBe(2);
  vi.advanceTimersByTime(60_000);
  expect(sockets.length).toBe(2);
});
