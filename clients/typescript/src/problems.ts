import { BY_SLUG } from "./generated/problems.js";
import { Problem } from "./problem.js";

/** Return the error for a response that is no success. */
export function problemOf(status: number, body: unknown): Problem {
  const problem = new Problem(status, body);
  const Known = Object.hasOwn(BY_SLUG, problem.slug) ? BY_SLUG[problem.slug] : undefined;
  return Known ? new Known(status, body) : problem;
}
