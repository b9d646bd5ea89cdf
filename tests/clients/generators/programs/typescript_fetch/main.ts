/** What every generated client does, with the one of openapi-generator for TypeScript and fetch. */

import { BatchesApi, Configuration, CreditsApi, HistoryApi, HoldsApi, InsufficientCreditsFromJSON, BatchModeEnum, ResponseError } from "./generated/index.js";

const holder = process.argv[2]!;
const configuration = new Configuration({ basePath: process.env["LEDGER_URL"]!, accessToken: process.env["LEDGER_API_KEY"]! });
const credits = new CreditsApi(configuration);
const holds = new HoldsApi(configuration);
const key = (name: string) => ({ holder, idempotencyKey: `${holder}-${name}` });

const granted = await credits.grantCredits({ ...key("grant"), grant: { amount: 100 } });
const spent = await credits.spendCredits({ ...key("spend"), spend: { amount: 30 } });
const refused = await credits.spendCredits({ ...key("refused"), spend: { amount: 1000 } }).then(
  () => Promise.reject(new Error("spent")),
  async (error: unknown) => {
    if (!(error instanceof ResponseError) || error.response.status !== 402) throw error;
    return InsufficientCreditsFromJSON(await error.response.json());
  },
);
const refunded = await credits.refundSpend({ ...key("refund"), refund: { spend: spent.sequence, amount: 10 } });
const held = await holds.holdCredits({ ...key("hold"), hold: { amount: 20 } });
const captured = await holds.captureHold({ ...key("capture"), sequence: held.sequence, capture: { amount: 15 } });
const batch = await new BatchesApi(configuration).runBatch({
  idempotencyKey: `${holder}-batch`,
  batch: {
    mode: BatchModeEnum.Atomic,
    operations: [
      { operation: "grant", holder, amount: 5 },
      { operation: "spend", holder, amount: 3 },
    ],
  },
});
const page = await new HistoryApi(configuration).listEntries({ holder });
const shortfall: number = refused.shortfall;
console.log(
  JSON.stringify({
    balances: [granted, spent, refunded, held, captured].map((entry) => entry.balance),
    shortfall,
    failed: batch.failed,
    kinds: page.results.map((entry) => entry.kind),
  }),
);
