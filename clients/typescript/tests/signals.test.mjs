import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { SignalRejected, verifySignal } from "../dist/src/index.js";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const BODY = '{"data":{"sequence":2},"timestamp":"2026-01-31T09:30:00.123456Z","type":"entry.recorded"}';

function headersOf({ secret = SECRET, body = BODY, at = Date.now() / 1000, id = "one" } = {}) {
  const timestamp = String(Math.floor(at));
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  return { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": `v1,${signature}` };
}

test("a signal is what was signed, by any of the secrets", async () => {
  const expected = { id: "one", type: "entry.recorded", timestamp: "2026-01-31T09:30:00.123456Z", data: { sequence: 2 } };
  assert.deepEqual(await verifySignal(BODY, headersOf(), SECRET), expected);
  assert.deepEqual(await verifySignal(new TextEncoder().encode(BODY), new Headers(headersOf()), OTHER, SECRET), expected);
  const both = headersOf();
  both["webhook-signature"] = `v1,AAAA v2,x ${both["webhook-signature"]}`;
  assert.deepEqual(await verifySignal(BODY, both, SECRET), expected);
});

const forged = {
  "another body": [BODY.replace("2}", "3}"), headersOf()],
  "another secret": [BODY, headersOf({ secret: OTHER })],
  "another id": [BODY, { ...headersOf(), "webhook-id": "two" }],
  "too old": [BODY, headersOf({ at: Date.now() / 1000 - 301 })],
  "of the future": [BODY, headersOf({ at: Date.now() / 1000 + 301 })],
  "no time": [BODY, { ...headersOf(), "webhook-timestamp": "now" }],
  "no signature": [BODY, {}],
  "no Base64": [BODY, { ...headersOf(), "webhook-signature": "v1,!!" }],
};
for (const [name, [body, headers]] of Object.entries(forged)) {
  test(`${name} is rejected`, async () => {
    await assert.rejects(verifySignal(body, headers, SECRET), SignalRejected);
  });
}

test("without a secret everything is rejected", async () => {
  await assert.rejects(verifySignal(BODY, headersOf()), SignalRejected);
  await assert.rejects(verifySignal(BODY, headersOf(), "whsec_"), SignalRejected);
});
