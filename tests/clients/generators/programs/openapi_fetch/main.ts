/** What every generated client does, with openapi-fetch and the types of openapi-typescript. */

import createClient from "openapi-fetch";

import type { paths } from "./generated/schema.js";

const holder = process.argv[2]!;
const client = createClient<paths>({
  baseUrl: process.env["LEDGER_URL"]!,
  headers: { Authorization: `Bearer ${process.env["LEDGER_API_KEY"]!}` },
});
const path = { holder };
const header = (name: string) => ({ "Idempotency-Key": `${holder}-${name}` });

/** Return the answer, or fail with the problem. */
function answer<Data>(done: { data?: Data; error?: unknown }): Data {
  if (done.data === undefined) throw new Error(JSON.stringify(done.error));
  return done.data;
}

const grant = await client.POST("/v1/holders/{holder}/grants", { params: { path, header: header("grant") }, body: { amount: 100 } });
const spend = await client.POST("/v1/holders/{holder}/spends", { params: { path, header: header("spend") }, body: { amount: 30 } });
const { error: refused } = await client.POST("/v1/holders/{holder}/spends", {
  params: { path, header: header("refused") },
  body: { amount: 1000 },
});
if (refused?.type !== "https://credit-ledger.example/problems/insufficient-credits") throw new Error(JSON.stringify(refused));
const refund = await client.POST("/v1/holders/{holder}/refunds", {
  params: { path, header: header("refund") },
  body: { spend: answer(spend).sequence, amount: 10 },
});
const hold = await client.POST("/v1/holders/{holder}/holds", { params: { path, header: header("hold") }, body: { amount: 20 } });
const capture = await client.POST("/v1/holders/{holder}/holds/{sequence}/captures", {
  params: { path: { holder, sequence: answer(hold).sequence }, header: header("capture") },
  body: { amount: 15 },
});
const batch = await client.POST("/v1/batches", {
  params: { header: header("batch") },
  body: {
    mode: "atomic",
    operations: [
      { operation: "grant", holder, amount: 5 },
      { operation: "spend", holder, amount: 3 },
    ],
  },
});
const page = await client.GET("/v1/holders/{holder}/entries", { params: { path } });
const shortfall: number = refused.shortfall;
console.log(
  JSON.stringify({
    balances: [grant, spend, refund, hold, capture].map((done) => answer(done).balance),
    shortfall,
    failed: answer(batch).failed,
    kinds: answer(page).results.map((entry) => entry.kind),
  }),
);
