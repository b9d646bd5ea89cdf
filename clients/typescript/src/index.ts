import type { components } from "./generated/schema.js";

export { RETRIES, type Retries } from "./attempts.js";
export { Client, type HoldFields, type Options } from "./client.js";
export { Hold } from "./hold.js";
export type { AnswerOf, Fields, Methods } from "./methods.js";
export { Pages } from "./pages.js";
export { CreditLedgerError, OutcomeUnknown, Problem, Unreachable, type FieldProblem } from "./problem.js";
export * from "./generated/problems.js";

/** What the server answers and what goes inside of requests, as the API names it: `Schemas["Entry"]`. */
export type Schemas = components["schemas"];
