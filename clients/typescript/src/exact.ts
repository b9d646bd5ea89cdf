/** An object of a response that may have integers beyond 2^53 - 1. */
interface Body {
  readonly exact_integers?: Readonly<Record<string, string>> | null;
}

/** The names of the integers of a body. */
type IntegerOf<Of> = { [Name in keyof Of]-?: Of[Name] extends number ? Name : never }[keyof Of] & string;

/** Return an integer of a response with all its digits, which a number of JavaScript has only up to 2^53 - 1. */
export function exactInteger<Of extends Body>(body: Of, name: IntegerOf<Of>): bigint {
  return BigInt(body.exact_integers?.[name] ?? (body[name] as number));
}
