// A gateway in TypeScript, as tests/clients/lease_gateway.py: node lease_gateway.mjs URL HOLDER LOG TERMS
import { openSync, writeSync } from "node:fs";
import { basename, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";

const [url, holder, logPath, terms] = process.argv.slice(2);
const { Client, CreditLedgerError, LeaseExhausted } = await import(resolve("dist/src/index.js"));

const reference = basename(logPath);
const log = openSync(logPath, "a");
const say = (...words) => writeSync(1, `${words.join(" ")}\n`);
const { amount, most } = JSON.parse(terms);
const client = new Client(url, process.env.API_KEY, { retries: { totalMs: 4_000, attemptMs: 2_000 } });
const lease = await client.lease(holder, { amount, most });

async function take(credits) {
  try {
    lease.spend(credits, { reference });
  } catch (error) {
    if (!(error instanceof LeaseExhausted)) throw error;
    await lease.refill(credits);
    lease.spend(credits, { reference });
  }
}

async function decide(count) {
  const took = [];
  for (let number = 0; number < count; number += 1) {
    const credits = 1 + ((number * 7) % 3);
    writeSync(log, `a ${credits}\n`);
    const began = performance.now();
    try {
      await take(credits);
    } catch (error) {
      if (!(error instanceof CreditLedgerError)) throw error;
      return [number, error.constructor.name, 0];
    }
    took.push(performance.now() - began);
    writeSync(log, `d ${credits}\n`);
    if (number % 50 === 49) {
      say("at", number + 1);
      await setImmediate(); // as a server that serves one request after the other
    }
  }
  return [count, "all", Math.floor(took.sort((one, other) => one - other)[count >> 1] * 1_000)];
}

say("open");
for await (const line of createInterface({ input: process.stdin })) {
  const [name, given] = line.split(" ");
  if (name === "decide") {
    say("did", ...(await decide(Number(given))));
  } else {
    await lease.close();
    say("closed");
    process.exit(0);
  }
}
