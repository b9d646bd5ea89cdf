// What a lease decides and sends, without a server: the lives of tests/clients/lease_cases.json, which the Python client lives too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { LeaseExhausted } from "../dist/src/index.js";
import { LeaseState, quantityOf } from "../dist/src/leaseState.js";

const CASES = JSON.parse(readFileSync(process.env.CASES, "utf8"));

function stateOf({ terms, prices }) {
  const { holder, amount, most, expires_in_ms: expiresInMs, margin_ms: marginMs, fields, rate } = terms;
  const state = new LeaseState({ holder, amount, most, expiresInMs, marginMs, fields, rate }, "lease");
  if (rate !== null) {
    state.learnPrices(1, new Map(Object.entries(prices).map(([name, [price, per]]) => [name, { price: BigInt(price), per: BigInt(per) }])));
  }
  return state;
}

const STEPS = {
  learn: (state, nowMs, text) => state.learnTime(text, nowMs) ?? null,
  ask: (state, _, amount) => state.askFor(amount) ?? null,
  close: (state) => state.close() ?? null,
  settle(state, nowMs, results) {
    const uncharged = state.settle(state.nextBatch(nowMs), results, nowMs).map((each) => each.problem.slug);
    return [uncharged, state.left(nowMs), state.captured, state.uncharged];
  },
  decide(state, nowMs, amount, quantities, reference, key) {
    const fields = JSON.stringify(reference === null ? {} : { reference });
    const wanted = quantities === null ? amount : new Map(Object.entries(quantities).map(([name, each]) => [name, quantityOf(each)]));
    try {
      const decision = state.decide(nowMs, { fields, key, byQuantities: quantities !== null }, wanted);
      return ["decided", decision.amount, decision.left, decision.repeated, state.isDue(nowMs)];
    } catch (error) {
      if (!(error instanceof LeaseExhausted)) throw error;
      return ["exhausted", error.requested, error.left, error.problem?.slug ?? null, state.isDue(nowMs)];
    }
  },
};

for (const [number, life] of CASES.entries()) {
  test(`life ${number}`, () => {
    const state = stateOf(life);
    for (const [nowMs, name, ...given] of life.steps) {
      const expected = given.pop();
      if (name === "batch") {
        const batch = state.nextBatch(nowMs);
        assert.deepEqual(batch && { key: batch.key, operations: batch.operations }, expected);
      } else {
        assert.deepEqual(STEPS[name](state, nowMs, ...given), expected, JSON.stringify([nowMs, name, given]));
      }
    }
  });
}

test("a quantity is what the ledger takes", () => {
  assert.equal(quantityOf("0.5"), 5n * 10n ** 11n);
  assert.equal(quantityOf(3), 3n * 10n ** 12n);
  for (const wrong of [-1, "1e3", "0.0000000000001", "", "٣", Number.NaN, "9007199254740992"]) {
    assert.throws(() => quantityOf(wrong), RangeError);
  }
});
