import { read, textOf, type Answer, type Call } from "./call.js";
import { OutcomeUnknown, Unreachable, type Problem } from "./problem.js";
import { problemOf } from "./problems.js";

/** How long a call is repeated. */
export interface Retries {
  /** No attempt begins later, and no wait ends later. */
  readonly totalMs: number;
  /** How long one attempt may wait for the whole of its answer. */
  readonly attemptMs: number;
  /** The wait before the second attempt if the server names no time; then doubled. Half of each wait is random. */
  readonly firstWaitMs: number;
  /** The longest of these waits. */
  readonly longestWaitMs: number;
}

export const RETRIES: Retries = { totalMs: 30_000, attemptMs: 10_000, firstWaitMs: 100, longestWaitMs: 5_000 };

/** An attempt without an answer. */
export interface Lost {
  readonly lost: string;
  /** False if the request cannot have reached the server. */
  readonly mayBeStored: boolean;
}

/** The answer of the call, or the wait before the same request is sent again. */
export type Next = { readonly value: unknown } | { readonly afterMs: number };

/** Refusals that were decided under the lock, which an unfinished attempt would still hold. */
const SETTLING: ReadonlySet<number> = new Set([402, 404, 409, 412]);
/** 409 without the lock. */
const UNDECIDED: ReadonlySet<string> = new Set(["lock-busy", "invoice-generation-busy"]);
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * All attempts of one call: says after each whether to return, to wait and send the same again, or to throw. No I/O, no clock.
 *
 * A write is *unsettled* once an attempt may have been stored without an answer that says so. Only an answer that was decided
 * after that attempt settles it.
 */
export class Attempts {
  #count = 0;
  #isUnsettled = false;

  constructor(
    readonly call: Call,
    readonly retries: Retries,
  ) {}

  /** Return how long the attempt that begins now may take. */
  timeOfAttempt(elapsedMs: number): number {
    return Math.max(0, Math.min(this.retries.attemptMs, this.retries.totalMs - elapsedMs));
  }

  /**
   * Decide what follows an attempt.
   *
   * @param elapsedMs since the first attempt began.
   * @param chance 0 to 1, new each time, so that clients that failed together do not return together.
   */
  judge(outcome: Answer | Lost, elapsedMs: number, chance: number): Next {
    this.#count += 1;
    if ("lost" in outcome) {
      return this.#afterLost(outcome, elapsedMs, chance);
    }
    if (outcome.status < 200 || outcome.status > 299) {
      return this.#afterProblem(problemOf(outcome.status, jsonOf(outcome)), retryAfterMs(outcome.headers), elapsedMs, chance);
    }
    let value: unknown;
    try {
      value = read(this.call, outcome);
    } catch {
      return this.#afterLost({ lost: "the answer was not complete", mayBeStored: true }, elapsedMs, chance);
    }
    return { value };
  }

  #afterLost(outcome: Lost, elapsedMs: number, chance: number): Next {
    this.#isUnsettled ||= outcome.mayBeStored && this.call.isWrite;
    const again = this.#again(null, elapsedMs, chance);
    if (again === null) {
      throw this.#isUnsettled ? this.#unknown(null, outcome.lost) : new Unreachable(outcome.lost);
    }
    return again;
  }

  #afterProblem(problem: Problem, retryAfter: number | null, elapsedMs: number, chance: number): Next {
    const isUnknown = problem.outcome !== "not_executed" && problem.status >= 500 && this.call.isWrite;
    this.#isUnsettled ||= isUnknown;
    const isUndecided = UNDECIDED.has(problem.slug);
    if (this.#isUnsettled && SETTLING.has(problem.status) && problem.slug !== "" && !isUndecided) {
      throw problem;
    }
    const isWorthRepeating = isUnknown || RETRYABLE.has(problem.status) || (this.#isUnsettled && isUndecided);
    const again = isWorthRepeating ? this.#again(retryAfter, elapsedMs, chance) : null;
    if (again === null) {
      throw this.#isUnsettled ? this.#unknown(problem, problem.message) : problem;
    }
    return again;
  }

  /** Return the wait before the next attempt, or null if that would end after the time. */
  #again(retryAfter: number | null, elapsedMs: number, chance: number): Next | null {
    const longest = Math.min(this.retries.longestWaitMs, this.retries.firstWaitMs * 2 ** (this.#count - 1));
    // Without a time from the server, or with 0, the client still pauses.
    const afterMs = retryAfter || longest * (0.5 + chance / 2);
    return elapsedMs + afterMs < this.retries.totalMs ? { afterMs } : null;
  }

  #unknown(last: Problem | null, reason: string): OutcomeUnknown {
    return new OutcomeUnknown(this.call.idempotencyKey, this.#count, last, reason);
  }
}

function jsonOf(answer: Answer): unknown {
  try {
    return JSON.parse(textOf(answer));
  } catch {
    return null;
  }
}

/** Return the time of Retry-After: seconds, or a date beside the server's own Date. */
function retryAfterMs(headers: Headers): number | null {
  const value = headers.get("Retry-After")?.trim() ?? "";
  if (/^\d+$/.test(value)) {
    return Number(value) * 1000;
  }
  const wait = Date.parse(value) - Date.parse(headers.get("Date") ?? "");
  return Number.isNaN(wait) ? null : Math.max(0, wait);
}
