/** The base class of this package's errors. */
export class CreditLedgerError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** No answer came within the time, and nothing was written by this call. */
export class Unreachable extends CreditLedgerError {}

/**
 * It is unknown whether a write is stored: a response was lost, and no repetition within the time settled it.
 *
 * Send the same call with `idempotencyKey` again later, never with another key: it could then take effect twice.
 */
export class OutcomeUnknown extends CreditLedgerError {
  constructor(
    readonly idempotencyKey: string,
    readonly attempts: number,
    readonly last: Problem | null,
    reason: string,
  ) {
    super(`After ${attempts} attempts, it is unknown whether the request with the key "${idempotencyKey}" is stored: ${reason}`);
  }
}

/** One wrong field of a request. */
export interface FieldProblem {
  pointer: string;
  code: string;
  detail: string;
}

const MEMBERS: ReadonlySet<string> = new Set(["type", "title", "status", "detail", "request_id", "outcome", "errors"]);

/** Return one sentence; of a wrong request, with each field and the rule that it breaks. */
function sentence(title: string, detail: string, errors: FieldProblem[]): string {
  const faults = errors.map((each) => `${each.pointer.replace(/^\//, "").replaceAll("/", ".") || "the request"}: ${withoutStop(each.detail)} (${each.code})`);
  const why = faults.join("; ") || withoutStop(detail);
  return why ? `${title}: ${why}.` : `${title}.`;
}

function withoutStop(text: string): string {
  return text.replace(/\.+$/, "");
}

/** The server answered with an error. A problem that this version does not know is a plain Problem. */
export class Problem extends CreditLedgerError {
  /** The kind of problem, such as `insufficient-credits`. Empty if something other than the ledger answered. */
  readonly slug: string;
  readonly title: string;
  readonly detail: string;
  readonly requestId: string;
  /** `not_executed` or `unknown`; null if something other than the ledger answered. */
  readonly outcome: string | null;
  readonly errors: FieldProblem[];
  /** The other members of the problem. The class of a problem has them as properties too. */
  readonly facts: Readonly<Record<string, unknown>>;

  constructor(
    readonly status: number,
    body: unknown,
  ) {
    const members: Record<string, unknown> = typeof body === "object" && body !== null ? { ...body } : {};
    const title = String(members["title"] || `HTTP ${status}`);
    const detail = String(members["detail"] || "");
    super(sentence(title, detail, Array.isArray(members["errors"]) ? members["errors"] : []));
    this.slug = String(members["type"] || "").split("/").pop() ?? "";
    this.title = title;
    this.detail = detail;
    this.requestId = String(members["request_id"] || "");
    this.outcome = typeof members["outcome"] === "string" ? members["outcome"] : null;
    this.errors = Array.isArray(members["errors"]) ? members["errors"] : [];
    this.facts = Object.fromEntries(Object.entries(members).filter(([name]) => !MEMBERS.has(name)));
  }

  /** Return a fact, or null if the server left it out. */
  protected fact<Value>(name: string): Value {
    return (this.facts[name] ?? null) as Value;
  }
}
