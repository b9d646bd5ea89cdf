import type { components } from "./generated/schema.js";

export { RETRIES, type Retries } from "./attempts.js";
export { Client, type FeedFields, type HoldFields, type Options } from "./client.js";
export { exactInteger } from "./exact.js";
export { Hold } from "./hold.js";
export { Lease, type LeaseFields, type UseFields } from "./lease.js";
export { LeaseClosed, LeaseExhausted, type Decision, type Uncharged } from "./leaseState.js";
export type { AnswerOf, Fields, Methods } from "./methods.js";
export { Feed, Pages } from "./pages.js";
export { CreditLedgerError, OutcomeUnknown, Problem, Unreachable, type FieldProblem } from "./problem.js";
export { SignalRejected, verifySignal, type Signal } from "./signals.js";
export * from "./generated/problems.js";

/** What the server answers and what goes inside of requests, as the API names it: `Schemas["Entry"]`. */
export type Schemas = components["schemas"];
