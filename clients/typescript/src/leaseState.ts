import { CreditLedgerError, type Problem } from "./problem.js";
import { problemOf } from "./problems.js";

export const MAX_AMOUNT = Number.MAX_SAFE_INTEGER;
/** How many captures one batch has at most. */
const MAX_CAPTURES = 500;
/** How long the captures of one batch are together at most; the server takes 4 MiB. */
const MAX_BATCH_CHARACTERS = 1_000_000;
/** How many keys of decisions a lease remembers. */
const MAX_KEYS = 100_000;
/** A lease is as large as what was used in this time. */
const REFILL_EVERY_MS = 10_000;
/** After this time, an answer no longer says what time it is at the ledger. */
const LATE_ANSWER_MS = 5_000;
/** How long a lease waits after a refused refill before the next; then twice as long, up to LONGEST_PAUSE_MS. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
/** A quantity has at most 12 decimals; a hold that is sized by quantities has six. */
const UNITS = 10n ** 12n;
const UNITS_OF_A_PART = 10n ** 6n;

/** The lease has too few credits left for this decision. Nothing was decided, and nothing was sent. */
export class LeaseExhausted extends CreditLedgerError {
  constructor(
    /** What the decision needs; 0 if the rate costs nothing now, and there is nothing to hold. */
    readonly requested: number,
    /** The most that a decision can take now. */
    readonly left: number,
    /** Why the ledger refused the last refill, such as InsufficientCredits or BudgetExceeded; null if it did not. */
    readonly problem: Problem | null,
  ) {
    const refused = problem === null ? "" : ` The ledger refused more: ${problem.message}`;
    const why = requested === 0 ? " What costs nothing is not held: spend it by a call." : refused;
    super(`The lease has ${left} credits left, and ${requested} are needed.${why}`);
  }
}

/** The lease was closed: it decides nothing any more. */
export class LeaseClosed extends CreditLedgerError {}

/** A decision that was taken. */
export interface Decision {
  /** The credits that it took; by quantities, what they add to the cost of their group. */
  readonly amount: number;
  /** The most that the next decision can take. */
  readonly left: number;
  /** True if this key was decided before; nothing was taken again. */
  readonly repeated: boolean;
}

export type Operation = Readonly<Record<string, unknown>>;

/** Decisions that the ledger did not charge: the capture or spend that was sent, and why the ledger refused it. */
export interface Uncharged {
  readonly operation: Operation;
  readonly problem: Problem;
}

/** What a lease is, as its owner asked for it. */
export interface Terms {
  readonly holder: string;
  /** Credits that it sets aside at first, and at least when it is used. */
  readonly amount: number;
  /** Credits that it ever sets aside at the same time: what is lost for a while if the process dies. */
  readonly most: number;
  readonly expiresInMs: number;
  /** How long before its expiry the lease stops to decide against a hold. */
  readonly marginMs: number;
  /** `credit_type`, `reason`, `reference` and `metadata` of its holds, as far as they are given. */
  readonly fields: Operation;
  readonly rate: string | null;
}

/** `price` credits for `per` units, by component of a rate. */
export type Prices = ReadonlyMap<string, { readonly price: bigint; readonly per: bigint }>;

/** Quantities in units of 10^-12, by component. */
export type Quantities = ReadonlyMap<string, bigint>;

/** What a decision is for. Decisions with the same use are captured by one entry. */
export interface Use {
  /** `reason`, `reference` and `metadata`, as far as they are given, as JSON with sorted names. */
  readonly fields: string;
  /** Its own idempotency key: such a decision is captured by an entry of its own. */
  readonly key: string | null;
  readonly byQuantities: boolean;
}

/** Decisions with the same use, against the same hold, that were not sent yet. */
interface Group {
  readonly use: Use;
  count: number;
  /** Of decisions by amounts. */
  amount: number;
  /** Of decisions by quantities. */
  readonly quantities: Map<string, bigint>;
}

/** A hold of the lease. */
interface Held {
  readonly sequence: number;
  /** Credits that can still be decided: what the ledger holds, less what was decided and is not captured yet. */
  left: number;
  /** At the latest now, by the clock of the gateway, the hold has not expired. */
  endsMs: number;
  lifeMs: number;
  /** Of the rate that prices quantities. */
  readonly version: number | null;
  readonly groups: Map<string, Group>;
  isUsed: boolean;
  /** Nothing is decided against it any more; what is left goes back. */
  isRetired: boolean;
}

/** One request: the same operations with the same key, however often it is sent. */
export interface Batch {
  readonly key: string;
  readonly operations: readonly Operation[];
  /** What each capture or spend costs, and the size of a hold; 0 for other operations. */
  readonly costs: readonly number[];
  readonly builtMs: number;
}

/** An entry, as far as a lease reads it. */
interface EntryRead {
  readonly sequence: number;
  readonly amount: number;
  readonly effective_at: string;
  readonly expires_at?: string | null;
  readonly rating?: { readonly version?: number } | null;
}

export interface Result {
  readonly status: number;
  readonly body?: EntryRead;
  readonly problem?: unknown;
}

type Costed = [operation: Operation, cost: number];

/**
 * What a lease decides, and what it sends next. No I/O, no clock.
 *
 * A lease is a hold that a gateway decides against by itself. Its decisions are collected in groups, one capture for each, and sent
 * in one batch, in which the next hold is placed before the last one is used up.
 */
export class LeaseState {
  #number = 0;
  #holds: Held[] = [];
  #sent: Batch | null = null;
  /** Spends instead of captures whose hold had ended. */
  #late: Costed[] = [];
  readonly #prices = new Map<number, Prices>();
  readonly #keys = new Map<string, number>();
  #size: number;
  /** What a refused refill said is there. */
  #limit: number | null = null;
  /** Whether the last refill was of all that is there. */
  #isLimited = false;
  /** The largest decision that was refused since the last refill. */
  #needed = 0;
  /** Whether `askFor` wants a refill now, also during a pause. */
  #isAsked = false;
  #usedSinceMs: number | null = null;
  #used = 0;
  #pauseMs = 0;
  #notBeforeMs = 0;
  /** Whether the rate may have a newer version: it has become more expensive, or the known one costs nothing. */
  #isOutdated = false;
  #server: { readonly micros: bigint; readonly atMs: number } | null = null;
  /** The ledger refuses the batch as a whole: nothing is decided until it takes it. */
  #isHalted = false;
  #isClosed = false;

  /** Credits, in sum. */
  decided = 0;
  captured = 0;
  uncharged = 0;
  /** Why the last refill was refused. */
  problem: Problem | null = null;

  /** @param key what the keys of its batches begin with; no other lease has it. */
  constructor(
    readonly terms: Terms,
    readonly key: string,
  ) {
    this.#size = terms.amount;
  }

  // Deciding ---------------------------------------------------------------------------------------------

  /** Return the most credits that one decision can take now. */
  left(nowMs: number): number {
    return Math.max(0, ...this.#usable(nowMs).map((each) => each.left));
  }

  /**
   * Take the credits of a decision.
   *
   * @param wanted an amount, or quantities of components of the rate.
   * @throws LeaseExhausted if no hold has them, LeaseClosed, and RangeError if the rate does not have a component.
   */
  decide(nowMs: number, use: Use, wanted: number | Quantities): Decision {
    if (this.#isClosed) {
      throw new LeaseClosed("The lease was closed.");
    }
    const before = use.key === null ? undefined : this.#keys.get(use.key);
    if (before !== undefined) {
      return { amount: before, left: this.left(nowMs), repeated: true };
    }
    const name = JSON.stringify([use.fields, use.key, use.byQuantities]);
    let cost = typeof wanted === "number" ? wanted : costOf(this.#newestPrices(), wanted);
    for (const held of this.#usable(nowMs)) {
      const group = held.groups.get(name) ?? { use, count: 0, amount: 0, quantities: new Map() };
      if (typeof wanted !== "number") {
        const prices = this.#pricesOf(held);
        cost = costOf(prices, sumOf(group.quantities, wanted)) - costOf(prices, group.quantities);
      }
      if (cost <= held.left) {
        held.groups.set(name, group);
        this.#take(held, group, cost, wanted);
        return { amount: cost, left: this.left(nowMs), repeated: false };
      }
    }
    // The price of a hold of before says nothing about the next.
    cost = typeof wanted !== "number" && this.isFree ? 0 : cost;
    this.#need(cost);
    throw new LeaseExhausted(cost, this.left(nowMs), this.problem);
  }

  #take(held: Held, group: Group, cost: number, wanted: number | Quantities): void {
    group.count += 1;
    if (typeof wanted === "number") {
      group.amount += cost;
    } else {
      sumOf(group.quantities, wanted).forEach((quantity, component) => group.quantities.set(component, quantity));
    }
    held.left -= cost;
    held.isUsed = true;
    this.decided += cost;
    this.#used += cost;
    if (group.use.key !== null) {
      this.#keys.set(group.use.key, cost);
      if (this.#keys.size > MAX_KEYS) {
        this.#keys.delete(this.#keys.keys().next().value as string);
      }
    }
  }

  /**
   * Remember a decision for which the next refill is to be large enough; one above `most` never fits. One that costs nothing also needs
   * a hold, to be captured.
   */
  #need(amount: number): void {
    if (amount <= this.terms.most) {
      this.#needed = Math.max(this.#needed, amount, 1);
    }
  }

  /** Return the holds that can be decided against, the oldest first. */
  #usable(nowMs: number): Held[] {
    const isUsable = (held: Held): boolean =>
      (held.version === null || this.#prices.has(held.version)) && !held.isRetired && nowMs < held.endsMs - this.terms.marginMs;
    return this.#isHalted ? [] : this.#holds.filter(isUsable);
  }

  /** True if the rate has a version that is not known: a hold by it is not used until `learnPrices`. */
  get needsPrices(): boolean {
    const isUnknown = this.#holds.some((each) => each.version !== null && !this.#prices.has(each.version));
    return !this.#isClosed && (this.#isOutdated || isUnknown);
  }

  /** Learn the prices of a version of the rate. */
  learnPrices(version: number, prices: Prices): void {
    this.#prices.set(version, prices);
    this.#isOutdated = false;
  }

  /** True if the newest version of the rate costs nothing, so that no quantities are worth a hold. */
  get isFree(): boolean {
    return this.#prices.size > 0 && [...this.#newestPrices().values()].every((each) => each.price === 0n);
  }

  #newestPrices(): Prices {
    return this.#prices.get(Math.max(...this.#prices.keys())) ?? new Map();
  }

  #pricesOf(held: Held): Prices {
    return (held.version === null ? undefined : this.#prices.get(held.version)) ?? new Map();
  }

  // Sending ----------------------------------------------------------------------------------------------

  /** Return whether a batch is due before its usual time: credits run low, or a hold ends soon. */
  isDue(nowMs: number): boolean {
    if (this.#sent !== null) {
      return false;
    }
    const ends = this.#holds.some((each) => each.endsMs - this.terms.marginMs <= nowMs || each.isRetired);
    const isMany = this.#holds.reduce((sum, each) => sum + each.groups.size, 0) >= MAX_CAPTURES;
    return ends || isMany || this.#late.length > 0 || this.#extended(nowMs) !== null || this.#refill(nowMs)[0] > 0;
  }

  /** Have the next batch refill the lease, also during a pause, so that a decision of this amount can be taken. */
  askFor(amount: number): void {
    this.#isAsked = true;
    this.#need(amount);
  }

  /** Decide nothing any more; the next batches capture what was decided, and release the rest. */
  close(): void {
    this.#isClosed = true;
  }

  /** Return the batch to send: the one whose outcome is unknown, or the next; null if there is nothing to send. */
  nextBatch(nowMs: number): Batch | null {
    if (this.#sent !== null) {
      return this.#sent;
    }
    let [wanted, keepsNewest] = this.#refill(nowMs);
    if (wanted > 0 && this.isFree) {
      this.#waitForAPrice(nowMs);
      wanted = 0;
    }
    this.#retire(nowMs, wanted > 0, keepsNewest);
    const costed = this.#late.splice(0, MAX_CAPTURES);
    if (this.#addCaptures(costed)) {
      this.#addReleases(costed, nowMs);
      const size = Math.min(wanted, this.terms.most - this.#heldAfter(costed));
      if (size > 0) {
        costed.push([this.#hold(size, nowMs), size]);
        this.#beginRefill(nowMs);
      }
    }
    if (costed.length === 0) {
      this.#forgetEnded();
      return null;
    }
    this.#number += 1;
    const operations = costed.map(([operation]) => operation);
    this.#sent = { key: `${this.key}/${this.#number}`, operations, costs: costed.map(([, cost]) => cost), builtMs: nowMs };
    return this.#sent;
  }

  /** Take the results of a batch; return what was not charged. */
  settle(batch: Batch, results: readonly Result[], nowMs: number): Uncharged[] {
    this.#sent = null;
    this.#isHalted = false;
    const uncharged: Uncharged[] = [];
    results.forEach((result, number) => {
      const operation = batch.operations[number] as Operation;
      const cost = batch.costs[number] as number;
      if (result.body !== undefined) {
        this.#succeeded(batch, operation, cost, result.body, nowMs);
        return;
      }
      const problem = problemOf(result.status, result.problem);
      if (operation["operation"] !== "capture" && operation["operation"] !== "spend") {
        this.#failed(batch, operation, cost, problem);
      } else if (!this.#goesLate(batch, number, operation, cost, problem)) {
        this.uncharged += cost;
        uncharged.push({ operation, problem });
      }
    });
    this.#forgetEnded();
    return uncharged;
  }

  /** Stop to decide, because the ledger refuses the batch as a whole, such as when the key was revoked. */
  refuse(problem: Problem): void {
    this.#isHalted = true;
    this.problem = problem;
  }

  /** Learn that it was this time at the ledger at about this instant of the gateway. */
  learnTime(text: string, nowMs: number): void {
    this.#server = { micros: microsOf(text), atMs: nowMs };
  }

  // Which holds there are --------------------------------------------------------------------------------

  /** Return how large the next hold is to be, 0 for none, and whether the newest hold goes on beside it. */
  #refill(nowMs: number): [size: number, keepsNewest: boolean] {
    const isPaused = nowMs < this.#notBeforeMs && !this.#isAsked;
    if (this.#isClosed || this.#isHalted || isPaused || this.#server === null) {
      return [0, true];
    }
    const usable = this.#usable(nowMs);
    const total = usable.reduce((sum, each) => sum + each.left, 0);
    const isLow = total * 2 < this.#size && this.#holds.some((each) => each.isUsed);
    if (!isLow && this.#needed <= this.left(nowMs) && (usable.length > 0 || !this.#isAsked)) {
      return [0, true];
    }
    const target = Math.max(this.#nextSize(nowMs), this.#needed);
    const kept = usable.at(-1)?.left ?? 0;
    const keepsNewest = this.#needed <= Math.max(kept, target - kept);
    const size = keepsNewest ? target - kept : target;
    return [this.#limit === null ? size : Math.min(size, this.#limit), keepsNewest];
  }

  /** Return the size of the lease for how fast it was used since the last refill: at most twice or half the last size. */
  #nextSize(nowMs: number): number {
    if (this.#usedSinceMs === null) {
      return this.#size;
    }
    const paced = Math.floor((this.#used * REFILL_EVERY_MS) / Math.max(1, nowMs - this.#usedSinceMs));
    const bounded = Math.min(Math.max(paced, Math.floor(this.#size / 2)), this.#size * 2);
    return Math.min(Math.max(bounded, this.terms.amount), this.terms.most);
  }

  /** Remember when and how the lease is refilled. */
  #beginRefill(nowMs: number): void {
    this.#isLimited = this.#limit !== null;
    if (this.#isLimited) {
      this.#pause(nowMs);
    } else {
      this.#size = this.#nextSize(nowMs);
    }
    this.#limit = null;
    this.#used = 0;
    this.#usedSinceMs = nowMs;
    this.#needed = 0;
    this.#isAsked = false;
  }

  /** Ask for the prices again instead of a refill, and not before a pause once more. */
  #waitForAPrice(nowMs: number): void {
    this.#isOutdated = true;
    this.#pause(nowMs);
    this.#needed = 0;
    this.#isAsked = false;
  }

  /** Stop to use the holds that end soon; for a refill, also the older ones, and the newest if it is too small. */
  #retire(nowMs: number, isRefill: boolean, keepsNewest: boolean): void {
    const usable = this.#usable(nowMs);
    const kept = this.#isClosed || (isRefill && !keepsNewest) ? [] : isRefill ? usable.slice(-1) : usable;
    for (const held of this.#holds) {
      held.isRetired ||= !kept.includes(held);
    }
  }

  /** Return the most that the ledger holds after these operations: others may have used the key of a capture. */
  #heldAfter(costed: readonly Costed[]): number {
    const left = this.#holds.reduce((sum, each) => sum + (each.isRetired ? 0 : each.left), 0);
    const keyed = costed.filter(([operation]) => operation["operation"] === "capture" && "idempotency_key" in operation);
    return keyed.reduce((sum, [, cost]) => sum + cost, left);
  }

  /** Return the newest hold if it is used, and half of its life is over. */
  #extended(nowMs: number): Held | null {
    const newest = this.#usable(nowMs).at(-1);
    if (this.#isClosed || newest === undefined || !newest.isUsed || newest.left === 0 || this.#server === null) {
      return null;
    }
    return (newest.endsMs - nowMs) * 2 < newest.lifeMs ? newest : null;
  }

  /** Forget the holds of which nothing is left, here and at the ledger. */
  #forgetEnded(): void {
    this.#holds = this.#holds.filter((each) => each.groups.size > 0 || each.left > 0);
  }

  #heldBy(operation: Operation): Held | undefined {
    return this.#holds.find((each) => each.sequence === operation["hold"]);
  }

  /** Note that the hold of an operation has ended: nothing can be decided against it. */
  #drop(operation: Operation): void {
    const held = this.#heldBy(operation);
    if (held !== undefined) {
      held.left = 0;
      held.isRetired = true;
    }
  }

  #addHold(batch: Batch, entry: EntryRead, nowMs: number): void {
    const [endsMs, lifeMs] = endOf(batch, entry);
    // A rate that has just become more expensive holds more than was meant.
    const isTooLarge = -entry.amount > this.terms.most;
    if (entry.amount === 0) {
      // The rate has become free. Nothing can be taken from such a hold, which ends at its expiry.
      this.#isOutdated = true;
      return;
    }
    const version = entry.rating?.version ?? null;
    this.#holds.push({ sequence: entry.sequence, left: -entry.amount, endsMs, lifeMs, version, groups: new Map(), isUsed: false, isRetired: isTooLarge });
    this.#isAsked ||= isTooLarge;
    if (!this.#isLimited) {
      this.problem = null;
    }
    if (nowMs >= this.#notBeforeMs) {
      this.#pauseMs = 0;
    }
  }

  #pause(nowMs: number): void {
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
    this.#notBeforeMs = nowMs + this.#pauseMs;
  }

  // What is sent -----------------------------------------------------------------------------------------

  #operation(name: string, fields: Operation): Operation {
    const creditType = this.terms.fields["credit_type"];
    return { operation: name, holder: this.terms.holder, ...fields, ...(creditType === undefined ? {} : { credit_type: creditType }) };
  }

  /** Add a capture for each group, as far as the batch has room; return whether all had room. */
  #addCaptures(costed: Costed[]): boolean {
    let length = 0;
    for (const held of this.#holds) {
      for (const [name, group] of held.groups) {
        const capture = this.#capture(held, group);
        length += JSON.stringify(capture).length;
        if (costed.length >= MAX_CAPTURES || length > MAX_BATCH_CHARACTERS) {
          return false;
        }
        costed.push([capture, group.use.byQuantities ? costOf(this.#pricesOf(held), group.quantities) : group.amount]);
        held.groups.delete(name);
      }
    }
    return true;
  }

  #capture(held: Held, group: Group): Operation {
    const reason = group.count === 1 ? "1 decision" : `${group.count} decisions`;
    const quantities = [...group.quantities].map(([component, quantity]) => [component, decimalOf(quantity)]);
    const price = group.use.byQuantities ? { quantities: Object.fromEntries(quantities) } : { amount: group.amount };
    const key = group.use.key === null ? {} : { idempotency_key: group.use.key };
    return this.#operation("capture", { hold: held.sequence, ...price, final: false, reason, ...JSON.parse(group.use.fields), ...key });
  }

  /** Add what ends holds, and what lets the newest one live on. */
  #addReleases(costed: Costed[], nowMs: number): void {
    for (const held of this.#holds) {
      if (held.isRetired && held.left > 0) {
        costed.push([this.#operation("release", { hold: held.sequence }), 0]);
      }
    }
    const extended = this.#extended(nowMs);
    if (extended !== null) {
      extended.isUsed = false;
      costed.push([this.#operation("extend", { hold: extended.sequence, expires_at: this.#expiry(nowMs) }), 0]);
    }
  }

  #hold(size: number, nowMs: number): Operation {
    const price = this.terms.rate === null ? { amount: size } : { rate: this.terms.rate, quantities: quantitiesFor(this.#newestPrices(), size) };
    const { credit_type: _, ...fields } = this.terms.fields;
    return this.#operation("hold", { ...price, expires_at: this.#expiry(nowMs), ...fields });
  }

  /** Return the quantities of a hold of this number of credits by the newest version of the rate. */
  quantitiesFor(amount: number): Readonly<Record<string, string>> {
    return quantitiesFor(this.#newestPrices(), amount);
  }

  /** Return when a hold that begins now expires, by the clock of the ledger. */
  #expiry(nowMs: number): string {
    if (this.#server === null) {
      throw new TypeError("the time of the ledger is learnt first");
    }
    const micros = this.#server.micros + BigInt(nowMs - this.#server.atMs + this.terms.expiresInMs) * 1_000n;
    const milliseconds = new Date(Number(micros / 1_000n)).toISOString().slice(0, -1);
    return `${milliseconds}${String(micros % 1_000n).padStart(3, "0")}Z`;
  }

  // What came of it --------------------------------------------------------------------------------------

  #succeeded(batch: Batch, operation: Operation, cost: number, entry: EntryRead, nowMs: number): void {
    if (nowMs - batch.builtMs < LATE_ANSWER_MS) {
      this.learnTime(entry.effective_at, batch.builtMs);
    }
    const held = this.#heldBy(operation);
    if (operation["operation"] === "hold") {
      this.#addHold(batch, entry, nowMs);
    } else if (operation["operation"] === "release") {
      this.#drop(operation);
    } else if (operation["operation"] !== "extend") {
      this.captured += cost;
    } else if (held !== undefined) {
      [held.endsMs, held.lifeMs] = endOf(batch, entry);
    }
  }

  #failed(batch: Batch, operation: Operation, cost: number, problem: Problem): void {
    if (operation["operation"] !== "hold") {
      if (operation["operation"] === "release" || problem.slug === "hold-closed") {
        this.#drop(operation);
      }
      return;
    }
    this.problem = problem;
    const available = problem.facts["available"] ?? problem.facts["remaining"];
    const requested = problem.facts["requested"];
    if (this.terms.rate !== null && typeof requested === "number" && requested > cost) {
      this.#isOutdated = this.#isAsked = true;
      return;
    }
    this.#limit = typeof available === "number" && 0 < available && available < cost ? available : null;
    if (this.#limit === null) {
      this.#pause(batch.builtMs);
    } else {
      this.#isAsked = true;
    }
  }

  /**
   * Have the next batch spend what a capture did not charge because its hold had ended. A capture that was refused for another
   * reason leaves its credits in the hold.
   */
  #goesLate(batch: Batch, number: number, operation: Operation, cost: number, problem: Problem): boolean {
    if (operation["operation"] === "spend") {
      return false;
    }
    if (problem.slug !== "hold-closed") {
      const held = this.#heldBy(operation);
      if (held !== undefined) {
        held.left += cost;
      }
      return false;
    }
    this.#drop(operation);
    const { hold: _, final: __, ...fields } = operation;
    const rate = "quantities" in operation ? { rate: this.terms.rate } : {};
    this.#late.push([{ ...fields, ...rate, operation: "spend", idempotency_key: `${batch.key}/${number}/late` }, cost]);
    return true;
  }
}

/** Return a decimal string or an integer as a quantity; throws a RangeError if the ledger would not take it. */
export function quantityOf(value: number | string): bigint {
  const [text, whole, decimals] = /^(\d{1,16})(?:\.(\d{1,12}))?$/.exec(String(value)) ?? [];
  const quantity = text === undefined ? -1n : BigInt(whole ?? "") * UNITS + BigInt((decimals ?? "").padEnd(12, "0"));
  if (quantity < 0n || quantity > BigInt(MAX_AMOUNT) * UNITS) {
    throw new RangeError(`a quantity is a number, 0 or more, with at most 12 decimals, not ${value}`);
  }
  return quantity;
}

/** Return what quantities cost: the exact sum, rounded up once. */
function costOf(prices: Prices, quantities: Quantities): number {
  let numerator = 0n;
  let denominator = 1n;
  for (const [component, quantity] of quantities) {
    const price = prices.get(component);
    if (price === undefined) {
      throw new RangeError(`the rate has no component "${component}"; it has ${[...prices.keys()].join(", ")}`);
    }
    numerator = numerator * price.per * UNITS + quantity * price.price * denominator;
    denominator *= price.per * UNITS;
  }
  return Number((numerator + denominator - 1n) / denominator);
}

function sumOf(first: Quantities, second: Quantities): Quantities {
  const sum = new Map(first);
  second.forEach((quantity, component) => sum.set(component, (sum.get(component) ?? 0n) + quantity));
  return sum;
}

/** Return quantities that cost this number of credits, or nearly: of the component with the lowest price above 0. */
function quantitiesFor(prices: Prices, amount: number): Readonly<Record<string, string>> {
  const priced = [...prices].filter(([, each]) => each.price > 0n);
  const [name, { price, per }] = priced.reduce((one, other) => (other[1].price * one[1].per < one[1].price * other[1].per ? other : one));
  const parts = (BigInt(amount) * per * UNITS_OF_A_PART) / price;
  const most = BigInt(MAX_AMOUNT) * UNITS_OF_A_PART;
  return { [name]: decimalOf((parts < most ? parts : most) * (UNITS / UNITS_OF_A_PART)) };
}

function decimalOf(quantity: bigint): string {
  return `${quantity / UNITS}.${String(quantity % UNITS).padStart(12, "0")}`.replace(/\.?0+$/, "");
}

/**
 * Return when a hold ends at the earliest by the clock of the gateway, and how long it lives. The ledger decided at `effective_at`,
 * which was not before the batch was built: so clocks need not agree.
 */
function endOf(batch: Batch, entry: EntryRead): [endsMs: number, lifeMs: number] {
  const lifeMs = Number((microsOf(entry.expires_at ?? entry.effective_at) - microsOf(entry.effective_at)) / 1_000n);
  return [batch.builtMs + lifeMs, lifeMs];
}

/** Return the microseconds since 1970 of an instant of the server, which has six decimals. */
function microsOf(text: string): bigint {
  const [, seconds, decimals] = /^(.*?)(?:\.(\d+))?Z$/.exec(text) ?? [];
  return BigInt(Date.parse(`${seconds}Z`)) * 1_000n + BigInt((decimals ?? "").padEnd(6, "0").slice(0, 6));
}
