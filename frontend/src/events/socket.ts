/** The live event stream: one socket a page, replay by sequence number, each event once and in order. */

export interface EventFrame {
  v: number;
  run: string;
  seq: number;
  kind: "state" | "started" | "progress" | "best" | "checkpoint" | "log" | "error" | "finished";
  data: Record<string, unknown>;
}

type ServerFrame =
  | EventFrame
  | { kind: "reset"; run: string }
  | { kind: "denied"; run: string }
  | { kind: "heartbeat"; time: string };

export type Connection = "connecting" | "live" | "stale" | "reconnecting" | "offline";

export interface RunListener {
  onEvent(frame: EventFrame): void;
  /** Too far behind: read the log over HTTP, then subscribe again after what was read. */
  onReset(): void;
  onDenied(): void;
}

/** The parts of a WebSocket that are used, so that tests can stand in for one. */
export interface SocketLike {
  readyState: number;
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  send(text: string): void;
  close(): void;
}

interface Subscription {
  last: number;
  listener: RunListener;
  /** A gap was seen and a replay asked for; frames above it are ignored until it arrives. */
  repairing: boolean;
}

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;
const HEALTHY_AFTER_MS = 30_000;
/** Two heartbeats and a little. */
const STALE_AFTER_MS = 35_000;
/** A socket that stays silent this much longer is given up: a dead connection may never report its end. */
const GIVE_UP_AFTER_MS = 10_000;
/** The socket outlives a change of page by this much. */
const IDLE_MS = 5_000;
const OPEN_STATE = 1;
/** The server's word for "not signed in". */
const UNAUTHENTICATED = 4401;

export class EventClient {
  /** How many gaps were seen; should stay 0. */
  gaps = 0;
  /** How many frames had been seen before. */
  doubles = 0;
  private readonly runs = new Map<string, Subscription>();
  private readonly watchers = new Set<() => void>();
  private socket: SocketLike | null = null;
  private state: Connection = "offline";
  private attempts = 0;
  private openedAt = 0;
  private retry: ReturnType<typeof setTimeout> | null = null;
  private staleness: ReturnType<typeof setTimeout> | null = null;
  private idle: ReturnType<typeof setTimeout> | null = null;

  constructor(
    private readonly connectSocket: () => SocketLike,
    private readonly random: () => number = Math.random,
    private readonly now: () => number = Date.now,
  ) {}

  get connection(): Connection {
    return this.state;
  }

  /** Call back on every change of `connection`; returns the way to stop. */
  watch(callback: () => void): () => void {
    this.watchers.add(callback);
    return () => this.watchers.delete(callback);
  }

  /** Follow a run's events with `seq > after`; returns the way to stop. A run has one listener a page. */
  subscribe(run: string, after: number, listener: RunListener): () => void {
    const subscription = { last: after, listener, repairing: false };
    this.runs.set(run, subscription);
    if (this.idle !== null) clearTimeout(this.idle);
    this.idle = null;
    if (this.socket?.readyState === OPEN_STATE) this.ask(run, subscription);
    else this.open();
    return () => {
      if (this.runs.get(run) !== subscription) return;
      this.runs.delete(run);
      this.sendFrame({ type: "unsubscribe", run });
      if (this.runs.size === 0) this.idle = setTimeout(() => this.shut(), IDLE_MS);
    };
  }

  /** Try now instead of waiting: the network is back or the page is looked at again. */
  wake(): void {
    if (this.runs.size === 0 || this.socket !== null) return;
    this.attempts = 0;
    this.open();
  }

  private open(): void {
    if (this.socket !== null) return;
    if (this.retry !== null) clearTimeout(this.retry);
    this.retry = null;
    if (this.state === "offline") this.become("connecting");
    const socket = this.connectSocket();
    this.socket = socket;
    socket.onopen = () => {
      this.openedAt = this.now();
      this.become("live");
      this.heard();
      for (const [run, subscription] of this.runs) this.ask(run, subscription);
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") return;
      this.heard();
      this.take(JSON.parse(data) as ServerFrame);
    };
    socket.onclose = ({ code }) => {
      if (this.socket === socket) this.lost(code);
    };
  }

  private lost(code: number): void {
    this.socket = null;
    if (this.staleness !== null) clearTimeout(this.staleness);
    if (this.runs.size === 0) return this.become("offline");
    if (code === UNAUTHENTICATED) {
      this.become("offline");
      for (const { listener } of [...this.runs.values()]) listener.onDenied();
      return;
    }
    if (this.openedAt > 0 && this.now() - this.openedAt > HEALTHY_AFTER_MS) this.attempts = 0;
    this.openedAt = 0;
    this.become("reconnecting");
    const ceiling = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.attempts++);
    this.retry = setTimeout(() => this.open(), ceiling * (0.5 + 0.5 * this.random()));
  }

  private shut(): void {
    if (this.retry !== null) clearTimeout(this.retry);
    if (this.staleness !== null) clearTimeout(this.staleness);
    this.retry = null;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.become("offline");
  }

  private ask(run: string, subscription: Subscription): void {
    subscription.repairing = false;
    this.sendFrame({ type: "subscribe", run, after: subscription.last });
  }

  private take(frame: ServerFrame): void {
    if (frame.kind === "heartbeat") return;
    const subscription = this.runs.get(frame.run);
    if (!subscription) return;
    if (frame.kind === "reset") return subscription.listener.onReset();
    if (frame.kind === "denied") return subscription.listener.onDenied();
    if (frame.seq <= subscription.last) {
      this.doubles++;
      return;
    }
    if (frame.seq > subscription.last + 1) {
      if (subscription.repairing) return;
      this.gaps++;
      this.sendFrame({ type: "unsubscribe", run: frame.run });
      this.ask(frame.run, subscription);
      subscription.repairing = true;
      return;
    }
    subscription.last = frame.seq;
    subscription.repairing = false;
    subscription.listener.onEvent(frame);
  }

  private heard(): void {
    if (this.state === "stale") this.become("live");
    if (this.staleness !== null) clearTimeout(this.staleness);
    this.staleness = setTimeout(() => {
      this.become("stale");
      this.staleness = setTimeout(() => {
        const socket = this.socket;
        this.lost(0);
        socket?.close();
      }, GIVE_UP_AFTER_MS);
    }, STALE_AFTER_MS);
  }

  private sendFrame(frame: Record<string, unknown>): void {
    if (this.socket?.readyState === OPEN_STATE) this.socket.send(JSON.stringify(frame));
  }

  private become(state: Connection): void {
    if (state === this.state) return;
    this.state = state;
    for (const watcher of this.watchers) watcher();
  }
}

/** The page's one client, on the page's own origin. */
export function pageEvents(): EventClient {
  const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/events`;
  const client = new EventClient(() => new WebSocket(url) as unknown as SocketLike);
  window.addEventListener("online", () => client.wake());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) client.wake();
  });
  return client;
}
