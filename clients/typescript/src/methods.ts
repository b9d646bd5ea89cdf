import type { CALLS } from "./generated/calls.js";
import type { operations } from "./generated/schema.js";
import type { Pages } from "./pages.js";

type Calls = typeof CALLS;
type Operation<Name extends keyof Calls> = operations[Calls[Name]["id"]];

type NamesIn<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}` ? [Name, ...NamesIn<Rest>] : [];
type ValuesOf<Names extends string[], Types> = { [Index in keyof Names]: Types extends Record<Names[Index], infer Value> ? Value : never };
type InPath<Name extends keyof Calls> = ValuesOf<
  NamesIn<Calls[Name]["path"]>,
  Operation<Name> extends { parameters: { path: infer Types } } ? Types : never
>;

type Query<Name extends keyof Calls> = Operation<Name> extends { parameters: { query?: infer Fields } } ? Omit<NonNullable<Fields>, "cursor" | "after" | "wait"> : unknown;
type Body<Name extends keyof Calls> = Operation<Name> extends { requestBody: { content: { "application/json": infer Fields } } }
  ? Fields extends unknown ? Omit<Fields, "dry_run"> : never
  : unknown;
type OfHeaders<Name extends keyof Calls> = Operation<Name> extends { parameters: { header?: infer Fields } }
  ? ("Idempotency-Key" extends keyof NonNullable<Fields>
      ? {
          /** The same for the same write, however often it is sent; without it the client makes one for each call. */
          idempotencyKey?: string;
        }
      : unknown) &
      ("If-Match" extends keyof NonNullable<Fields>
        ? {
            /** The sequence that must still be the account's last one. */
            ifMatch?: number;
          }
        : unknown)
  : unknown;

/** What a call takes by name: the fields of its query and its body as the API names them, and `idempotencyKey` and `ifMatch`. */
export type Fields<Name extends keyof Calls> = Query<Name> & Body<Name> & OfHeaders<Name>;

type Content<Response> = Response extends { content: infer Types } ? Types : never;
type Success<Responses> = Content<Responses[keyof Responses & (200 | 201)]>;
type Json<Types> = Types extends { "application/json": infer Value } ? Value : Uint8Array;

/** What a call answers with. */
export type AnswerOf<Name extends keyof Calls> = Json<Success<Operation<Name>["responses"]>>;

type Sent<Name extends keyof Calls> = Calls[Name]["isList"] extends true
  ? AnswerOf<Name> extends { results: (infer Item)[] } ? Pages<Item> : never
  : Promise<AnswerOf<Name>>;

type Given<Name extends keyof Calls> = Record<never, never> extends Fields<Name> ? [fields?: Fields<Name>] : [fields: Fields<Name>];

/** One method for each call of the API. What identifies the resource comes first, all else by name. */
export type Methods = { [Name in keyof Calls]: (...given: [...InPath<Name>, ...Given<Name>]) => Sent<Name> };
