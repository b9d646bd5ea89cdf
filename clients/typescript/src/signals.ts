import { CreditLedgerError } from "./problem.js";

/** A request is not a signal from the ledger: its signature does not match, or it is more than 5 minutes old. */
export class SignalRejected extends CreditLedgerError {}

/** What happened. */
export interface Signal {
  /** The same each time the signal is sent; handle each id once. */
  id: string;
  /** Such as `entry.recorded`. */
  type: string;
  /** When its cause happened, as RFC 3339. */
  timestamp: string;
  data: unknown;
}

const TOLERATED_SECONDS = 300;
const PREFIX = "whsec_";

/**
 * Return the signal of a request to a webhook; reject with SignalRejected if the ledger did not send it.
 *
 * @param body the bytes as they were received, before anything parsed them
 * @param headers of the request: `Headers`, or an object with lower-case names as in node
 * @param secrets of the webhook; during a rotation, both. One match is enough.
 */
export async function verifySignal(
  body: string | Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
  ...secrets: string[]
): Promise<Signal> {
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => header(headers, name));
  if (!id || !timestamp || !signatures) throw new SignalRejected("The request has no signature.");
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!(age <= TOLERATED_SECONDS)) throw new SignalRejected("The request is not of the last 5 minutes.");
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${text}`);
  const given = signatures.split(" ").filter((each) => each.startsWith("v1,"));
  for (const secret of secrets) {
    const key = await importKey(secret);
    for (const each of given) {
      const signature = bytesOf(each.slice("v1,".length));
      // The comparison takes the same time wherever the first difference is.
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, signed))) {
        return { id, ...(JSON.parse(text) as Omit<Signal, "id">) };
      }
    }
  }
  throw new SignalRejected("No signature fits.");
}

function header(headers: Headers | Record<string, string | string[] | undefined>, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function importKey(secret: string): Promise<CryptoKey> {
  const bytes = bytesOf(secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret);
  if (!bytes || bytes.length === 0) throw new SignalRejected("The secret is not one of a webhook.");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
