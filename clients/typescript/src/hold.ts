import { newKey } from "./call.js";
import type { AnswerOf, Fields, Methods } from "./methods.js";

type Entry = AnswerOf<"placeHold">;
type Client = Pick<Methods, "capture" | "release" | "extend">;

/** Credits that are set aside until they are captured or released. */
export class Hold {
  readonly #client: Client;
  readonly #key: string;
  #captures = 0;
  /** The hold as it was recorded; `entry.sequence` is its number. */
  readonly entry: Entry;
  isOpen = true;

  constructor(client: Client, entry: Entry, key: string) {
    this.#client = client;
    this.entry = entry;
    this.#key = key;
  }

  /**
   * Spend the held credits, or `amount` of them; the rest goes back to the holder, unless `final` is false. Instead of an amount, `quantities`
   * may say what was used: by the version of the rate that priced the hold.
   */
  async capture(fields: Omit<Fields<"capture">, "idempotencyKey" | "ifMatch" | "dry_run" | "credit_type"> = {}): Promise<AnswerOf<"capture">> {
    this.#captures += 1;
    const captured = await this.#client.capture(this.entry.holder_id, this.entry.sequence, {
      ...fields,
      credit_type: this.entry.credit_type,
      idempotencyKey: keyWithin(this.#key, `capture-${this.#captures}`),
    });
    this.isOpen = fields.final === false;
    return captured;
  }

  /** Give all held credits back. */
  async release(fields: { reason?: string } = {}): Promise<AnswerOf<"release">> {
    const released = await this.#client.release(this.entry.holder_id, this.entry.sequence, {
      ...fields,
      credit_type: this.entry.credit_type,
      idempotencyKey: keyWithin(this.#key, "release"),
    });
    this.isOpen = false;
    return released;
  }

  /** Hold until another instant. */
  extend(expires_at: string): Promise<AnswerOf<"extend">> {
    return this.#client.extend(this.entry.holder_id, this.entry.sequence, { expires_at, credit_type: this.entry.credit_type });
  }
}

/** Return the key of a capture or release, derived from the hold's key, so that a repeated block takes effect once. */
function keyWithin(key: string, what: string): string {
  return key.length + what.length < 255 ? `${key}/${what}` : newKey();
}
