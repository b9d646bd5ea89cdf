// What must compile, and what must not: checked by tsc, never run.
import { Client, exactInteger, InsufficientCredits, type Schemas } from "../src/index.js";

export async function compiles(client: Client): Promise<void> {
  const spent: Schemas["Entry"] = await client.spend("jane", { amount: 3, idempotencyKey: "order-1", ifMatch: 7, dry_run: true });
  const exact: bigint = exactInteger(spent, "balance") + exactInteger(await client.balance("jane"), "available");
  // @ts-expect-error: no integer
  exactInteger(spent, "reason");
  const balance: number = (await client.balance("jane")).balance;
  for await (const entry of client.entries("jane", { kind: "spend", limit: 10 })) {
    const sequence: number = entry.sequence;
    await client.explain("jane", sequence);
  }
  for await (const entry of client.follow("end", { refusals: true })) {
    const id: string = entry.id;
    await client.findEntries({ reference: id });
  }
  // @ts-expect-error: the feed is followed
  client.findEntries({ after: "start" });
  const tokens: number = await client.withHold("jane", { amount: 40 }, async (hold) => -(await hold.capture({ amount: 30 })).amount);
  await client.batch({ mode: "each", operations: [{ operation: "spend", holder: "jane", amount: tokens + balance }] });
  const lease = await client.lease("jane", { amount: 10, most: 20, rate: "chat" });
  const left: number = lease.spend({ input: 3, output: "0.5" }, { reference: "call-1" }).left + lease.spend(3).left;
  // @ts-expect-error: the amount is missing
  await client.lease("jane", { most: left });
  const pdf: Uint8Array = await client.statementPdf("jane", "2026-01");
  const error: unknown = { spent, exact, pdf };
  if (error instanceof InsufficientCredits) {
    const missing: number = error.shortfall;
    // @ts-expect-error: what the API key may not see is null
    const available: number = error.available;
    exactInteger(error, "shortfall");
    await client.grant("jane", { amount: missing + available });
  }
  // @ts-expect-error: an amount is a number
  await client.spend("jane", { amount: "3" });
  // @ts-expect-error: no such field
  await client.spend("jane", { amount: 3, amuont: 4 });
  // @ts-expect-error: the sequence is missing
  await client.capture("jane");
  // @ts-expect-error: the amount is missing
  await client.grant("jane", {});
  // @ts-expect-error: a dry run is no hold
  await client.withHold("jane", { amount: 1, dry_run: true }, async () => 1);
  // @ts-expect-error: reads have no key
  await client.balance("jane", { idempotencyKey: "k" });
}
