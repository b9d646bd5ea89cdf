/** A request, the same however often it is sent. */
export interface Call {
  readonly method: string;
  /** With its parameters and its query, each quoted. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Whether it takes effect, once for its idempotency key. A dry run is not a write. */
  readonly isWrite: boolean;
  readonly idempotencyKey: string;
  /** False for a document such as a PDF, which is returned as bytes. */
  readonly isJson: boolean;
}

/** What a method of the client knows of its call. */
export interface Shape {
  readonly method: string;
  readonly path: string;
  readonly query: readonly string[];
  readonly hasBody: boolean;
  readonly isWrite: boolean;
  readonly isJson: boolean;
}

/** A response of the server. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly content: Uint8Array;
}

/** Return a call; a write without a key gets one. */
export function callOf(shape: Shape, inPath: readonly unknown[], given: Readonly<Record<string, unknown>>): Call {
  const { idempotencyKey, ifMatch, ...fields } = given;
  const isWrite = shape.isWrite && fields["dry_run"] !== true;
  const key = idempotencyKey ?? (isWrite ? newKey() : undefined);
  const headers: Record<string, string> = { Accept: shape.isJson ? "application/json" : "application/pdf, application/problem+json" };
  if (shape.hasBody) {
    headers["Content-Type"] = "application/json";
  }
  if (key !== undefined) {
    headers["Idempotency-Key"] = String(key);
  }
  if (ifMatch !== undefined) {
    headers["If-Match"] = `"${String(ifMatch)}"`;
  }
  const inBody = Object.entries(fields).filter(([name]) => !shape.query.includes(name));
  return {
    method: shape.method,
    path: pathOf(shape, inPath, fields),
    headers,
    body: shape.hasBody ? JSON.stringify(Object.fromEntries(inBody)) : null,
    isWrite,
    idempotencyKey: String(key ?? ""),
    isJson: shape.isJson,
  };
}

/** Return the content of a successful answer; throws a SyntaxError if it is incomplete. */
export function read(call: Call, answer: Answer): unknown {
  return call.isJson ? JSON.parse(textOf(answer)) : answer.content;
}

export function textOf(answer: Answer): string {
  return new TextDecoder().decode(answer.content);
}

/** Return a new, unique idempotency key. */
export function newKey(): string {
  return crypto.randomUUID();
}

function pathOf(shape: Shape, inPath: readonly unknown[], fields: Readonly<Record<string, unknown>>): string {
  const names = shape.path.match(/\{[a-z_]+\}/g) ?? [];
  if (inPath.length !== names.length || inPath.includes(undefined)) {
    throw new TypeError(`${shape.method} ${shape.path} needs ${names.length} values for its path`);
  }
  const values = inPath[Symbol.iterator]();
  const path = shape.path.replace(/\{[a-z_]+\}/g, () => segment(String(values.next().value)));
  const query = new URLSearchParams();
  for (const name of shape.query) {
    if (fields[name] !== undefined) {
      query.set(name, String(fields[name]));
    }
  }
  return `${path}?${query}`.replace(/\?$/, "");
}

function segment(value: string): string {
  if (value === "." || value === "..") {
    throw new TypeError(`"${value}" cannot be a part of a path`);
  }
  return encodeURIComponent(value);
}
