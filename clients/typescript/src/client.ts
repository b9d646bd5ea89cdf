import { Attempts, RETRIES, type Lost, type Retries } from "./attempts.js";
import { callOf, newKey, type Answer, type Call, type Shape } from "./call.js";
import { CALLS } from "./generated/calls.js";
import type { components } from "./generated/schema.js";
import { Hold } from "./hold.js";
import { Lease, type LeaseFields } from "./lease.js";
import type { Fields, Methods } from "./methods.js";
import { Feed, Pages, type Page } from "./pages.js";

type Schemas = components["schemas"];

export interface Options {
  /** How long a call is repeated; what is left out is as in `RETRIES`. */
  readonly retries?: Partial<Retries>;
  /** Another function of fetch's signature, such as one with a proxy. */
  readonly fetch?: typeof fetch;
}

/** What `hold` and `withHold` take: a dry run's sequence may become another entry, which the end would capture. */
export type HoldFields = Omit<Fields<"placeHold">, "dry_run">;

/** Which entries `follow` gives, and how many at a time. */
export type FeedFields = Pick<Fields<"findEntries">, "holder" | "credit_type" | "kind" | "refusals" | "limit">;

const FEED: Shape = { ...CALLS.findEntries, query: [...CALLS.findEntries.query, "after", "wait"] };
const LONGEST_WAIT_S = 4;

/** All calls of the API. Each is sent until its outcome is known, with one idempotency key, within the time of `retries`. */
export class Client {
  readonly #url: string;
  readonly #authorization: string;
  readonly #retries: Retries;
  readonly #fetch: typeof fetch;

  /** @param url the address of the server, such as `https://credits.example.com`. */
  constructor(url: string, apiKey: string, options: Options = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#authorization = `Bearer ${apiKey}`;
    this.#retries = { ...RETRIES, ...options.retries };
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Set credits aside at once. If the process dies, the hold ends at its `expires_at`. */
  async hold(holder: string, fields: HoldFields): Promise<Hold> {
    const key = fields.idempotencyKey ?? newKey();
    return new Hold(this, await this.placeHold(holder, { ...fields, idempotencyKey: key }), key);
  }

  /** Set credits aside, do the work, and capture the hold; release it if the work throws. `work` may capture what it cost. */
  async withHold<Result>(holder: string, fields: HoldFields, work: (hold: Hold) => Promise<Result>): Promise<Result> {
    const hold = await this.hold(holder, fields);
    let result: Result;
    try {
      result = await work(hold);
    } catch (error) {
      if (hold.isOpen) {
        await hold.release().catch((failure: Error) => {
          failure.cause = error;
          throw failure;
        });
      }
      throw error;
    }
    if (hold.isOpen) {
      await hold.capture();
    }
    return result;
  }

  /**
   * Hold credits for a while, so that `lease.spend(amount)` decides by itself, without I/O.
   *
   * What was decided is captured in groups in the background, and the lease is refilled before it is used up. `close` captures the rest of
   * what was decided, and releases what was not used. If the process dies, at most `most` credits stay held until the hold expires, and what
   * was not captured is not charged.
   */
  async lease(holder: string, fields: LeaseFields): Promise<Lease> {
    return new Lease(this, holder, fields).open();
  }

  /**
   * Follow the entries of all holders as they are recorded: each once, those of an account in the order of their sequence. It never ends.
   *
   * @param after `start`, `end` for entries from now on, an instant, or the `position` of an earlier feed.
   */
  follow(after: string, fields: FeedFields = {}): Feed<Schemas["Entry"]> {
    // The server answers two seconds before an attempt is over.
    const wait = Math.max(0, Math.min(LONGEST_WAIT_S, Math.floor(this.#retries.attemptMs / 1_000) - 2));
    const ask = (place: string): Promise<unknown> => this.#send(FEED, [], { ...fields, wait, after: place });
    return new Feed(ask as (place: string) => Promise<Page<Schemas["Entry"]>>, after);
  }

  /** Send a call until its outcome is known. */
  async #send(shape: Shape, inPath: readonly unknown[], fields: Readonly<Record<string, unknown>>): Promise<unknown> {
    const call = callOf(shape, inPath, fields);
    const attempts = new Attempts(call, this.#retries);
    const began = performance.now();
    for (;;) {
      const outcome = await this.#attempt(call, attempts.timeOfAttempt(performance.now() - began));
      const next = attempts.judge(outcome, performance.now() - began, Math.random());
      if ("value" in next) {
        return next.value;
      }
      await new Promise((resolve) => setTimeout(resolve, next.afterMs));
    }
  }

  /** Send a call once. Every failure, and an answer that arrives too slowly, is a lost attempt. */
  async #attempt(call: Call, timeMs: number): Promise<Answer | Lost> {
    const abort = new AbortController();
    // A request that cannot be built is the caller's mistake, and throws.
    const request = new Request(this.#url + call.path, {
      method: call.method,
      headers: { ...call.headers, Authorization: this.#authorization },
      body: call.body,
      signal: abort.signal,
      redirect: "manual",
      credentials: "omit",
      cache: "no-store",
    });
    const timer = setTimeout(() => abort.abort(), timeMs);
    try {
      const response = await this.#fetch(request);
      return { status: response.status, headers: response.headers, content: new Uint8Array(await response.arrayBuffer()) };
    } catch (error) {
      return { lost: abort.signal.aborted ? "the answer took too long" : reasonOf(error), mayBeStored: !wasNotSent(error) };
    } finally {
      clearTimeout(timer);
    }
  }

  static {
    for (const [name, shape] of Object.entries(CALLS)) {
      Object.defineProperty(this.prototype, name, {
        value: function (this: Client, ...given: unknown[]) {
          const [inPath, fields] = split(shape, given);
          const send = (cursor?: string): Promise<unknown> => this.#send(shape, inPath, { ...fields, cursor });
          return shape.isList ? new Pages(send as (cursor?: string) => Promise<Page<unknown>>) : send();
        },
      });
    }
  }
}

// The methods are made above, from the same table.
export interface Client extends Methods {}

/** Return the values of the path, and the fields. */
function split(shape: Shape, given: readonly unknown[]): [unknown[], Record<string, unknown>] {
  const count = shape.path.split("{").length - 1;
  return [given.slice(0, count), { ...(given[count] as object | undefined) }];
}

/** True if the connection was not made. Browsers do not tell; then the request may have been sent. */
function wasNotSent(error: unknown): boolean {
  const cause = causeOf(error);
  const all = cause.errors ?? [cause];
  return all.every((each) => each.syscall === "connect" || each.syscall === "getaddrinfo" || each.code === "UND_ERR_CONNECT_TIMEOUT");
}

function reasonOf(error: unknown): string {
  const cause = causeOf(error);
  return cause.message || cause.code || String(error);
}

interface ErrorOfNode {
  readonly message?: string;
  readonly code?: string;
  readonly syscall?: string;
  readonly errors?: readonly ErrorOfNode[];
}

function causeOf(error: unknown): ErrorOfNode {
  return error instanceof Error ? ((error.cause as ErrorOfNode | undefined) ?? error) : {};
}
