// One scenario against a running server, named by SCENARIO: tests/clients/test_typescript_client.py says what happens to its requests.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Client, HoldClosed, IdempotencyKeyReused, InsufficientCredits, exactInteger, InvalidRequest, LeaseClosed, LeaseExhausted, NotFound, OutcomeUnknown, Unauthenticated, Unreachable,
} from "../dist/src/index.js";

const { URL_OF_SERVER: url, API_KEY: apiKey, HOLDER: jane, SCENARIO: scenario } = process.env;
const QUICK = { totalMs: 20_000, attemptMs: 1_000, firstWaitMs: 10 };
const clientWith = (retries, fetch) => new Client(url, apiKey, { retries: { ...QUICK, ...retries }, fetch });
const client = clientWith({});

/** What captures and spends took, the oldest first, each with its reason. */
async function used() {
  const entries = (await all(client.entries(jane))).filter((entry) => entry.kind === "capture" || entry.kind === "spend");
  return entries.reverse().map((entry) => [entry.reason, entry.drawn.reduce((sum, lot) => sum + lot.amount, 0)]);
}

const SCENARIOS = {
  async lease() {
    await client.grant(jane, { amount: 1_000 });
    const uncharged = [];
    const fields = { amount: 100, most: 200, flushEveryMs: 3_600_000, onUncharged: (each) => uncharged.push(each) };
    await assert.rejects(client.lease(jane, { ...fields, expiresInMs: 31 * 24 * 3_600_000 }), RangeError);
    const lease = await client.lease(jane, { ...fields, metadata: { gateway: "eu-1" } });
    for (let number = 0; number < 10; number += 1) lease.spend(2, { metadata: { model: "small" } });
    lease.spend(5, { reference: "call-1" });
    assert.deepEqual(lease.spend(7, { idempotencyKey: "order-1" }), { amount: 7, left: 68, repeated: false });
    assert.deepEqual(lease.spend(7, { idempotencyKey: "order-1" }), { amount: 7, left: 68, repeated: true });
    assert.throws(() => lease.spend(201), (e) => e instanceof LeaseExhausted && contains(e, { requested: 201, left: 68, problem: null }));
    for (const wrong of [0, -1, 1.5, "3", null, { input: 1 }]) assert.throws(() => lease.spend(wrong), RangeError);
    assert.throws(() => lease.spend(1, { reason: "x".repeat(501) }), RangeError);
    assert.throws(() => lease.spend(1, { idempotencyKey: "é" }), RangeError);
    assert.equal((await client.balance(jane)).held, 100);
    assert.ok((await lease.refill(150)) >= 150);
    lease.spend(150);
    await lease.close();
    assert.throws(() => lease.spend(1), LeaseClosed);
    assert.deepEqual(await used(), [["10 decisions", 20], ["1 decision", 5], ["1 decision", 7], ["1 decision", 150]]);
    assert.deepEqual([lease.decided, lease.captured, uncharged], [182, 182, []]);
    assert.deepEqual((({ available, held }) => [available, held])(await client.balance(jane)), [818, 0]);
    await assert.rejects(client.lease(`${jane}-no`, { amount: 1 }), InsufficientCredits);
    await assert.rejects(async () => client.lease(jane, { amount: 2, most: 1 }), RangeError);
  },

  async lease_by_a_rate() {
    const rate = `chat.${jane.slice(-20)}`;
    await client.publishRate({ ref: rate, components: { input: { price: 1, per: 1000 }, output: { price: 3, per: 7 } } });
    await client.grant(jane, { amount: 1_000 });
    const lease = await client.lease(jane, { amount: 100, rate, flushEveryMs: 3_600_000 });
    const taken = Array.from({ length: 7 }, () => lease.spend({ input: 400, output: "0.5" }).amount);
    assert.deepEqual(taken, [1, 1, 0, 1, 1, 0, 1]);
    await client.publishRate({ ref: rate, components: { input: { price: 9, per: 1 }, output: { price: 9, per: 1 } } });
    assert.throws(() => lease.spend({ cached: 1 }), RangeError);
    lease.spend(2);
    await lease.refill(96);
    assert.equal(lease.spend({ input: 1, output: 1 }).amount, 18);
    await lease.close();
    assert.deepEqual((await used()).map(([, amount]) => amount), [5, 2, 18]);
    assert.equal(lease.captured, 25);
  },

  async lease_by_a_rate_that_is_free() {
    const rate = `chat.${jane.slice(-20)}`;
    await client.publishRate({ ref: rate, price: 1, per: 1 });
    await client.grant(jane, { amount: 100 });
    const lease = await client.lease(jane, { amount: 10, rate, flushEveryMs: 3_600_000 });
    await client.publishRate({ ref: rate, price: 0, per: 1 });
    lease.spend({ quantity: 9 });
    assert.ok((await lease.refill(5)) < 5);
    assert.throws(() => lease.spend({ quantity: 5 }), (e) => e instanceof LeaseExhausted && e.requested === 0 && /costs nothing/.test(e.message));
    assert.ok((await lease.refill(5)) < 5);
    await client.publishRate({ ref: rate, price: 2, per: 1 });
    await lease.refill(10);
    await lease.refill(10);
    assert.equal(lease.spend({ quantity: 5 }).amount, 10);
    await lease.close();
    assert.deepEqual((await used()).map(([, amount]) => amount), [9, 10]);
    await client.publishRate({ ref: rate, price: 0, per: 1 });
    await assert.rejects(client.lease(jane, { amount: 10, rate }), LeaseExhausted);
  },

  async lease_through_lost_answers() {
    await client.grant(jane, { amount: 1_000 });
    const lease = await client.lease(jane, { amount: 100, flushEveryMs: 3_600_000 });
    for (let number = 0; number < 6; number += 1) {
      lease.spend(10);
      await lease.flush();
    }
    await lease.close();
    assert.deepEqual(await used(), Array(6).fill(["1 decision", 10]));
  },

  async lease_whose_hold_is_ended() {
    await client.grant(jane, { amount: 100 });
    const uncharged = [];
    const lease = await client.lease(jane, { amount: 100, flushEveryMs: 3_600_000, onUncharged: (each) => uncharged.push(each) });
    lease.spend(30, { reference: "call-1" });
    lease.spend(9, { reference: "call-2" });
    const { hold } = await client.holds(jane).first();
    await client.release(jane, hold, { reason: "stop" });
    await client.spend(jane, { amount: 70 });
    await lease.close();
    assert.deepEqual(uncharged.map(({ operation, problem }) => [operation.amount, problem.slug]), [[9, "insufficient-credits"]]);
    assert.equal((await client.balance(jane)).available, 0);
  },

  async follow() {
    const feed = client.follow("end", { holder: jane });
    const entries = feed[Symbol.asyncIterator]();
    const first = entries.next();
    const granted = await client.grant(jane, { amount: 100 });
    // The place of `end` is where the server was when it got the first request: it may have been behind the grant.
    const rest = client.follow(granted.recorded_at, { holder: jane, limit: 1 });
    const spent = [await client.spend(jane, { amount: 1 }), await client.spend(jane, { amount: 2 })];
    const found = [];
    for await (const entry of rest) {
      found.push(entry.id);
      if (found.length === 3) break;
    }
    assert.deepEqual(found, [granted, ...spent].map((entry) => entry.id));
    assert.ok([granted.id, spent[0].id, spent[1].id].includes((await first).value.id));
    // The loop ended within its last page, which comes again.
    for await (const entry of client.follow(rest.position, { holder: jane })) {
      assert.equal(entry.id, spent[1].id);
      break;
    }
  },

  async calls() {
    const granted = await client.grant(jane, { amount: 100, reason: "welcome", metadata: { order: 1 }, idempotencyKey: "order-1" });
    assert.deepEqual([granted.kind, granted.amount, granted.metadata], ["grant", 100, { order: 1 }]);
    const spent = await client.spend(jane, { amount: 30 });
    assert.equal((await client.spend(jane, { amount: 1, dry_run: true })).balance, 69);
    assert.equal((await client.refund(jane, { spend: spent.sequence, amount: 10 })).refunded_total, 10);
    const { sequence } = await client.placeHold(jane, { amount: 20 });
    assert.equal((await client.capture(jane, sequence, { amount: 15 })).drawn[0].amount, 15);
    const batch = await client.batch({ mode: "each", operations: [{ operation: "spend", holder: jane, amount: 5 }] });
    assert.deepEqual(batch.results.map((each) => each.status), [201]);
    const balance = await client.balance(jane);
    assert.deepEqual([balance.balance, balance.held], [100 - 30 + 10 - 15 - 5, 0]);
    assert.deepEqual(await client.entry(jane, spent.sequence), spent);
    assert.equal(new TextDecoder().decode(await client.statementPdf(jane, new Date().toISOString().slice(0, 7))).slice(0, 4), "%PDF");

    const refused = { available: 60, shortfall: 440, requested: 500, status: 402 };
    await assert.rejects(client.spend(jane, { amount: 500, idempotencyKey: "s" }), (e) => e instanceof InsufficientCredits && contains(e, refused));
    await assert.rejects(client.spend(jane, { amount: 1, idempotencyKey: "s" }), IdempotencyKeyReused);
    await assert.rejects(client.spend(jane, { amount: 0 }), (e) => e instanceof InvalidRequest && e.errors[0].pointer === "/amount");
    await assert.rejects(client.spend(jane, { amount: 1, ifMatch: 1 }), { slug: "account-moved-on", expected: 1 });
    await assert.rejects(client.capture(jane, sequence), HoldClosed);
    await assert.rejects(client.holder(`${jane}-no`), NotFound);
    await assert.rejects(client.balance(`${jane}/entries?x=`), NotFound);
    await assert.rejects(new Client(url, "wrong").balance(jane), Unauthenticated);
    assert.equal((await client.balance(jane)).balance, 60);
  },

  async spend() {
    await client.grant(jane, { amount: 100 });
    assert.equal((await client.spend(jane, { amount: 10 })).amount, -10);
  },

  async spend_with_a_new_key_per_attempt() {
    await client.grant(jane, { amount: 100 });
    const careless = clientWith({}, (request) => {
      request.headers.set("Idempotency-Key", crypto.randomUUID());
      return fetch(request);
    });
    await careless.spend(jane, { amount: 10 });
  },

  async large() {
    const most = Number.MAX_SAFE_INTEGER;
    await client.grant(jane, { amount: most });
    const entry = await client.grant(jane, { amount: most, priority: 1 });
    assert.equal(exactInteger(entry, "balance"), 18014398509481982n);
    assert.equal(exactInteger(entry, "amount"), 9007199254740991n);
    const balance = await client.balance(jane);
    assert.equal(exactInteger(balance, "available"), 18014398509481982n);
    assert.equal(exactInteger(await client.spend(jane, { amount: most }), "balance"), 9007199254740991n);
  },

  async refusal() {
    await client.grant(jane, { amount: 100 });
    await assert.rejects(client.spend(jane, { amount: 500 }), (error) => error instanceof InsufficientCredits && error.shortfall === 400);
  },

  async unknown() {
    await client.grant(jane, { amount: 100 });
    const began = performance.now();
    await assert.rejects(clientWith({ totalMs: 300, attemptMs: 100 }).spend(jane, { amount: 10, idempotencyKey: "mine" }), (error) => {
      assert.ok(error instanceof OutcomeUnknown);
      assert.equal(error.idempotencyKey, "mine");
      return error.attempts > 1;
    });
    const took = performance.now() - began;
    assert.ok(took < 5_000, `${took} ms`);
  },

  async unreachable() {
    await assert.rejects(clientWith({ totalMs: 100 }).grant(jane, { amount: 10 }), Unreachable);
  },

  async pages() {
    await client.grant(jane, { amount: 100 });
    for (let i = 0; i < 6; i += 1) {
      await client.spend(jane, { amount: 1 });
    }
    const entries = client.entries(jane, { limit: 3 });
    assert.deepEqual((await all(entries)).map((each) => each.sequence), [7, 6, 5, 4, 3, 2, 1]);
    assert.deepEqual((await all(entries.pages())).map((page) => page.length), [3, 3, 1]);
    assert.equal((await entries.first()).sequence, 7);
    assert.equal(await client.entries(`${jane}-no`).first(), undefined);
  },

  async hold() {
    await client.grant(jane, { amount: 100 });
    const work = async (hold) => `captured ${(await hold.capture({ amount: 30 })).drawn[0].amount}`;
    assert.equal(await client.withHold(jane, { amount: 40, idempotencyKey: "job" }, work), "captured 30");
    // The job runs again after a crash: the same hold, the same capture.
    assert.equal(await client.withHold(jane, { amount: 40, idempotencyKey: "job" }, work), "captured 30");
    await client.withHold(jane, { amount: 5 }, async () => undefined);
    await assert.rejects(client.withHold(jane, { amount: 7 }, async () => Promise.reject(new RangeError("work"))), RangeError);
    // A hold that the work has closed elsewhere cannot be released: the error says both.
    const closes = async (hold) => {
      await client.release(jane, hold.entry.sequence);
      throw new RangeError("work");
    };
    await assert.rejects(client.withHold(jane, { amount: 7 }, closes), (error) => error instanceof HoldClosed && error.cause instanceof RangeError);
    const { balance, held } = await client.balance(jane);
    assert.deepEqual({ balance, held }, { balance: 65, held: 0 });
  },
};

async function all(items) {
  const found = [];
  for await (const each of items) {
    found.push(each);
  }
  return found;
}

function contains(error, facts) {
  return Object.entries(facts).every(([name, value]) => error[name] === value);
}

test(scenario, SCENARIOS[scenario] ?? (() => assert.fail(`there is no scenario ${scenario}`)));
