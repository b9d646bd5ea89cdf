// A service in node that answers questions for credits, a credit for each word, with the client's package of npm.
import { createServer } from "node:http";
import { json } from "node:stream/consumers";

import { Client, InsufficientCredits } from "credit-ledger-client";

const MOST_OF_AN_ANSWER = 5;
const client = new Client(process.env.LEDGER_URL, process.env.LEDGER_API_KEY);

// Hold what an answer costs at most, and capture what it has cost; an error gives all of it back.
async function answer(holder, question, idempotencyKey) {
  try {
    return await client.withHold(holder, { amount: MOST_OF_AN_ANSWER, idempotencyKey }, async (hold) => {
      const words = question.split(" ");
      if (question === "fail") throw new Error("The model is overloaded.");
      const { balance } = await hold.capture({ amount: words.length });
      return [200, { answer: words.reverse().join(" "), balance }];
    });
  } catch (error) {
    if (error instanceof InsufficientCredits) return [402, { available: error.available }];
    return [500, { error: error.message }];
  }
}

createServer(async (request, response) => {
  const [, holder] = request.url.match(/^\/holders\/([^/]+)\/answers$/) ?? [];
  const [status, body] = holder
    ? await answer(holder, (await json(request)).question, request.headers["idempotency-key"])
    : [200, "ok"];
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
}).listen(Number(process.env.PORT), "127.0.0.1");
