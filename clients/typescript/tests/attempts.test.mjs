// What follows an answer, without a server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Busy, Client, InsufficientCredits, OutcomeUnknown, Problem, RETRIES, Unreachable } from "../dist/src/index.js";
import { Attempts } from "../dist/src/attempts.js";
import { callOf } from "../dist/src/call.js";
import { CALLS } from "../dist/src/generated/calls.js";

const LOST = { lost: "cut", mayBeStored: true };
const NOT_SENT = { lost: "refused", mayBeStored: false };
const attemptsOf = (name = "spend", fields = {}) => new Attempts(callOf(CALLS[name], ["jane"], { amount: 1, ...fields }), RETRIES);
const answer = (status, body, headers = {}) => ({
  status,
  headers: new Headers(headers),
  content: new TextEncoder().encode(typeof body === "string" ? body : JSON.stringify(body)),
});
const problem = (status, slug, outcome, headers) => answer(status, { type: `https://x/problems/${slug}`, title: "No", status, outcome }, headers);

test("the server's time is obeyed, as seconds and as a date", () => {
  const busy = (headers) => attemptsOf().judge(problem(503, "server-busy", "not_executed", headers), 0, 0);
  assert.deepEqual(busy({ "Retry-After": "7" }), { afterMs: 7000 });
  const dates = { "Retry-After": "Sun, 01 Feb 2026 00:00:05 GMT", Date: "Sun, 01 Feb 2026 00:00:02 GMT" };
  assert.deepEqual(busy(dates), { afterMs: 3000 });
  assert.deepEqual(busy({ "Retry-After": "soon" }), { afterMs: 50 });
  assert.deepEqual(busy({ "Retry-After": "0" }), { afterMs: 50 });
});

test("waits double to their limit, and half of each is random", () => {
  const attempts = attemptsOf();
  const waits = Array.from({ length: 8 }, () => attempts.judge(LOST, 0, 1).afterMs);
  assert.deepEqual(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
  assert.equal(attemptsOf().judge(LOST, 0, 0).afterMs, 50);
});

test("a wait that would end after the time is not begun", () => {
  assert.throws(() => attemptsOf().judge(problem(503, "server-busy", "not_executed", { "Retry-After": "30" }), 0, 0), Busy);
  assert.throws(() => attemptsOf().judge(LOST, 29_950, 0), OutcomeUnknown);
  assert.throws(() => attemptsOf().judge(NOT_SENT, 29_950, 0), Unreachable);
  assert.deepEqual(attemptsOf().judge(LOST, 29_949, 0), { afterMs: 50 });
});

test("only an answer that was decided later settles a lost attempt", () => {
  const lost = (name, fields) => {
    const attempts = attemptsOf(name, fields);
    attempts.judge(LOST, 0, 0);
    return attempts;
  };
  assert.throws(() => lost().judge(problem(402, "insufficient-credits", "not_executed"), 1, 0), InsufficientCredits);
  assert.throws(() => lost().judge(problem(401, "unauthenticated", "not_executed"), 1, 0), OutcomeUnknown);
  assert.throws(() => lost().judge(answer(404, "<html>"), 1, 0), OutcomeUnknown);
  assert.deepEqual(lost().judge(problem(409, "lock-busy", "not_executed"), 1, 0), { afterMs: 100 });
  assert.throws(() => attemptsOf().judge(problem(409, "lock-busy", "not_executed"), 1, 0), Problem);
  assert.deepEqual(lost().judge(answer(201, { sequence: 1 }), 1, 0), { value: { sequence: 1 } });
  // Reads and dry runs write nothing: their outcome cannot be unknown.
  assert.throws(() => lost("spend", { dry_run: true }).judge(problem(401, "unauthenticated", "not_executed"), 1, 0), Problem);
  assert.throws(() => attemptsOf("balance").judge(LOST, 29_999, 0), Unreachable);
});

test("an answer of 500 leaves a write unknown, unless it says that nothing was executed", () => {
  assert.deepEqual(attemptsOf().judge(answer(500, "oops"), 0, 0), { afterMs: 50 });
  assert.throws(() => attemptsOf().judge(problem(500, "internal-error", "not_executed"), 0, 0), { slug: "internal-error" });
  assert.deepEqual(attemptsOf().judge(answer(201, '{"sequence": '), 0, 0), { afterMs: 50 });
});

test("a problem that this version does not know is a plain one, with its facts", () => {
  for (const slug of ["moon-phase", "constructor", "__proto__"]) {
    assert.throws(
      () => attemptsOf().judge(answer(418, { type: `https://x/problems/${slug}`, title: "Moon", detail: "full", phase: 4 }), 0, 0),
      (error) => error.constructor === Problem && error.slug === slug && error.facts.phase === 4 && error.message === "Moon: full.",
    );
  }
  assert.throws(() => attemptsOf().judge(answer(403, "[]"), 0, 0), { name: "Problem", status: 403, slug: "", outcome: null });
});

test("what cannot be a request is refused before it is sent", async () => {
  const client = new Client("http://127.0.0.1:9", "key", { fetch: () => assert.fail("sent") });
  await assert.rejects(client.balance(".."), TypeError);
  await assert.rejects(client.balance(), TypeError);
  await assert.rejects(client.spend("jane", { amount: 1, idempotencyKey: "two\nlines" }), TypeError);
});

test("without a key of the caller each call has its own, and all its attempts have the same", async () => {
  const keys = [];
  const fetch = async (request) => {
    keys.push(request.headers.get("Idempotency-Key"));
    return keys.length % 2 ? new Response("", { status: 502 }) : Response.json({ sequence: 1 }, { status: 201 });
  };
  const client = new Client("http://any", "key", { fetch, retries: { firstWaitMs: 1 } });
  await client.spend("jane", { amount: 1 });
  await client.spend("jane", { amount: 1 });
  assert.equal(keys[0], keys[1]);
  assert.equal(keys[2], keys[3]);
  assert.notEqual(keys[0], keys[2]);
});
