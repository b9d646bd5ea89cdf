import { newKey } from "./call.js";
import { Busy } from "./generated/problems.js";
import {
  LeaseExhausted, LeaseState, MAX_AMOUNT, quantityOf, type Decision, type Operation, type Prices, type Quantities, type Result, type Terms, type Uncharged, type Use,
} from "./leaseState.js";
import type { AnswerOf, Fields, Methods } from "./methods.js";
import { CreditLedgerError, Problem } from "./problem.js";

type Client = Pick<Methods, "batch" | "placeHold" | "rateVersions">;
type RateVersion = AnswerOf<"rateVersions">["results"][number];

/** A batch whose outcome was unknown, the refill, and the smaller refill if the account has less. */
const TURNS_OF_A_REFILL = 3;
const LONGEST_PAUSE_MS = 30_000;

/** What a lease is opened with. */
export interface LeaseFields {
  /** Credits that are held at first. */
  readonly amount: number;
  /** Credits that are held at the same time, if they are used that fast; by default `amount`. */
  readonly most?: number;
  /** How long a hold lives, by default a minute; one that is used is extended. */
  readonly expiresInMs?: number;
  /** How long before its expiry a hold is given up; by default a sixth of its life. */
  readonly marginMs?: number;
  /** How often what was decided is captured, by default each second. */
  readonly flushEveryMs?: number;
  /** The rate that prices the quantities of decisions. */
  readonly rate?: string;
  /** Of the holds, as the other fields: budgets and lots count by them. */
  readonly credit_type?: string;
  readonly reason?: string;
  readonly reference?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Called for what the ledger refused to charge; by default it is a warning of the console. */
  readonly onUncharged?: (uncharged: Uncharged) => void;
}

/** How long a hold of a lease lives at most; the ledger takes 31 days, by its own clock. */
const MAX_LIFE_MS = 30 * 24 * 3_600_000;

/** What a decision is for. Decisions with the same reason, reference and metadata are captured together, by one entry. */
export interface UseFields {
  readonly reason?: string;
  readonly reference?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Decided once, and captured by an entry of its own with this key. */
  readonly idempotencyKey?: string;
}

/** Credits that are held for a while, decided against without a call, and captured in groups; `Client.lease` opens it. */
export class Lease {
  readonly #client: Client;
  readonly #state: LeaseState;
  readonly #flushEveryMs: number;
  readonly #onUncharged: (uncharged: Uncharged) => void;
  #turns: Promise<unknown> = Promise.resolve();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pauseMs = 0;
  #hasEnded = false;
  /** Why the last batch was not settled yet; null if it was. */
  error: CreditLedgerError | null = null;

  constructor(client: Client, holder: string, fields: LeaseFields) {
    const { amount, most = amount, expiresInMs = 60_000, marginMs = Math.floor(expiresInMs / 6), flushEveryMs = 1_000 } = fields;
    if (!(Number.isSafeInteger(amount) && Number.isSafeInteger(most) && 1 <= amount && amount <= most)) {
      throw new RangeError(`amount and most must be 1 <= amount <= most <= ${MAX_AMOUNT}`);
    }
    if (!(Number.isInteger(expiresInMs) && Number.isInteger(marginMs) && 0 <= marginMs && marginMs * 2 < expiresInMs && expiresInMs <= MAX_LIFE_MS)) {
      throw new RangeError("expiresInMs must be more than twice marginMs, and at most 30 days; both are whole milliseconds");
    }
    const { credit_type, reason, reference, metadata } = fields;
    const given = Object.entries({ credit_type, reason, reference, metadata }).filter(([, value]) => value !== undefined);
    const terms: Terms = { holder, amount, most, expiresInMs, marginMs, fields: Object.fromEntries(given), rate: fields.rate ?? null };
    this.#client = client;
    this.#state = new LeaseState(terms, newKey());
    this.#flushEveryMs = flushEveryMs;
    this.#onUncharged = fields.onUncharged ?? warn;
  }

  /** Place the first hold. */
  async open(): Promise<this> {
    const { terms } = this.#state;
    if (terms.rate !== null) {
      await this.#learnPrices();
    }
    if (this.#state.isFree) {
      throw new LeaseExhausted(0, 0, null);
    }
    const price = terms.rate === null ? { amount: 1 } : { rate: terms.rate, quantities: this.#state.quantitiesFor(1) };
    const askedMs = nowMs();
    // A dry run tells the time of the ledger, and whether it would give the lease a credit.
    const trial = await this.#client.placeHold(terms.holder, { ...terms.fields, ...price, dry_run: true } as Fields<"placeHold">);
    this.#state.learnTime(trial.effective_at, askedMs);
    if ((await this.refill()) < 1) {
      throw this.#state.problem ?? new LeaseExhausted(1, 0, null);
    }
    this.#schedule(this.#flushEveryMs);
    return this;
  }

  /**
   * Decide at once and without I/O whether these credits may be spent, and take them from the lease.
   *
   * @param wanted an amount of 1 or more, or quantities of components of the rate of the lease. Those that are captured together are
   *   priced together, so their sum is rounded up once.
   * @throws LeaseExhausted if too few credits are left; a refill is on its way if the ledger may give one. LeaseClosed. RangeError if
   *   the ledger would refuse the capture.
   */
  spend(wanted: number | Readonly<Record<string, number | string>>, fields: UseFields = {}): Decision {
    const exact = this.#exact(wanted);
    const use = useOf(fields, typeof exact !== "number");
    try {
      return this.#state.decide(nowMs(), use, exact);
    } finally {
      if (this.#state.isDue(nowMs())) {
        this.#schedule(this.#pauseMs);
      }
    }
  }

  /** The most credits that one decision can take now. */
  get left(): number {
    return this.#state.left(nowMs());
  }

  /** The credits of all decisions. */
  get decided(): number {
    return this.#state.decided;
  }

  /** The credits of the decisions that the ledger has on record. */
  get captured(): number {
    return this.#state.captured;
  }

  /** Ask the ledger now for credits for a decision of this amount; return how many a decision can take then. */
  async refill(amount = 1): Promise<number> {
    this.#state.askFor(amount);
    for (let turn = 0; turn < TURNS_OF_A_REFILL; turn += 1) {
      await this.#turn();
      if (this.left >= amount || !this.#state.isDue(nowMs())) {
        break;
      }
    }
    return this.left;
  }

  /** Capture now what was decided until now. */
  async flush(): Promise<void> {
    await this.#turn();
  }

  /**
   * Capture what was decided, and give the rest back. If it throws, the holds end at their expiry, and what was decided and not captured
   * is not charged.
   */
  async close(): Promise<void> {
    this.#state.close();
    this.#hasEnded = true;
    clearTimeout(this.#timer);
    while (await this.#turn()) {
      // There may be more than one batch.
    }
  }

  #exact(wanted: number | Readonly<Record<string, number | string>>): number | Quantities {
    if (typeof wanted === "object" && wanted !== null) {
      const quantities = new Map(Object.entries(wanted).map(([component, each]) => [component, quantityOf(each)]));
      if (this.#state.terms.rate === null || quantities.size === 0) {
        throw new RangeError("quantities need a lease with a rate, and at least one component");
      }
      return quantities;
    }
    if (!Number.isSafeInteger(wanted) || wanted < 1) {
      throw new RangeError(`an amount is an integer from 1 to ${MAX_AMOUNT}`);
    }
    return wanted;
  }

  /** Run the next turn of the background after this time. */
  #schedule(afterMs: number): void {
    clearTimeout(this.#timer);
    if (this.#hasEnded) {
      return;
    }
    this.#timer = setTimeout(() => {
      this.#turn().then(
        () => {
          this.#pauseMs = 0;
          this.#schedule(this.#flushEveryMs);
        },
        (error: unknown) => {
          if (!(error instanceof CreditLedgerError)) {
            throw error;
          }
          this.#pauseMs = Math.min(Math.max(1_000, this.#pauseMs * 2), LONGEST_PAUSE_MS);
          this.#schedule(Math.max(this.#pauseMs, this.#flushEveryMs));
        },
      );
    }, afterMs);
    // A process of node ends although a lease is open; browsers have no such function.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** Send the next batch after those before it, and wait for its outcome; return false if there was nothing to send. */
  #turn(): Promise<boolean> {
    const turn = this.#turns.then(() => this.#send());
    this.#turns = turn.catch(() => undefined);
    return turn;
  }

  async #send(): Promise<boolean> {
    const batch = this.#state.nextBatch(nowMs());
    if (batch === null) {
      if (this.#state.needsPrices) {
        await this.#learnPrices();
      }
      return false;
    }
    try {
      const operations = batch.operations as unknown as Fields<"batch">["operations"];
      const answer = await this.#client.batch({ mode: "each", operations, idempotencyKey: batch.key });
      this.#state.settle(batch, answer.results as unknown as Result[], nowMs()).forEach(this.#onUncharged);
      this.error = null;
    } catch (error) {
      this.error = error instanceof CreditLedgerError ? error : null;
      if (error instanceof Problem && !(error instanceof Busy)) {
        this.#state.refuse(error);
      }
      throw error;
    }
    if (this.#state.needsPrices) {
      await this.#learnPrices();
    }
    return true;
  }

  /** Learn the prices of the newest version of the rate, and of those that priced a hold. */
  async #learnPrices(): Promise<void> {
    const creditType = this.#state.terms.fields["credit_type"] as string | undefined;
    for await (const version of this.#client.rateVersions(this.#state.terms.rate ?? "", { limit: 1, credit_type: creditType })) {
      this.#state.learnPrices(version.version, pricesOf(version));
      if (!this.#state.needsPrices) {
        return;
      }
    }
  }
}

function pricesOf(version: RateVersion): Prices {
  const components = (version.components ?? { quantity: version }) as Readonly<Record<string, { price: number; per: number }>>;
  return new Map(Object.entries(components).map(([name, each]) => [name, { price: BigInt(each.price), per: BigInt(each.per) }]));
}

/** Return what a decision is for; throws a RangeError for what the ledger would refuse in the capture, after the decision. */
function useOf({ reason, reference, metadata, idempotencyKey }: UseFields, byQuantities: boolean): Use {
  if ((reason?.length ?? 0) > 500 || (reference?.length ?? 0) > 200) {
    throw new RangeError("a reason has at most 500 characters, and a reference at most 200");
  }
  const names = Object.keys(metadata ?? {});
  if (names.length > 50 || names.some((name) => name.length > 64) || JSON.stringify(metadata ?? {}).length > 8_192) {
    throw new RangeError("metadata has at most 50 keys of at most 64 characters, and 8 KiB as JSON");
  }
  if (idempotencyKey !== undefined && !/^[ -~]{1,255}$/.test(idempotencyKey)) {
    throw new RangeError("an idempotency key has 1 to 255 printable ASCII characters");
  }
  const fields: Operation = { ...(names.length > 0 ? { metadata } : {}), reason, reference };
  return { fields: JSON.stringify(fields, sorted), key: idempotencyKey ?? null, byQuantities };
}

/** Have JSON.stringify write the names of objects in their order. */
function sorted(_: string, value: unknown): unknown {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))) : value;
}

const STARTED = { monotonic: performance.now(), wall: Date.now() };
let sleptMs = 0;

/** Return a time that also goes on while the machine sleeps, and never goes back. */
function nowMs(): number {
  const monotonic = performance.now();
  sleptMs = Math.max(sleptMs, Date.now() - STARTED.wall - (monotonic - STARTED.monotonic));
  return Math.floor(monotonic + sleptMs);
}

function warn({ operation, problem }: Uncharged): void {
  console.warn(`A lease could not charge what it had decided: ${problem.message}`, operation);
}
