/** A page of a list, as the server answers it. */
export interface Page<Item> {
  readonly results: Item[];
  readonly next: string | null;
}

/** The items of a list. Each iteration begins with the first page again, and asks for a page when the last one is used up. */
export class Pages<Item> implements AsyncIterable<Item> {
  readonly #ask: (cursor?: string) => Promise<Page<Item>>;

  constructor(ask: (cursor?: string) => Promise<Page<Item>>) {
    this.#ask = ask;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.pages()) {
      yield* page;
    }
  }

  /** Return page after page; `limit` is the size of each. */
  async *pages(): AsyncGenerator<Item[], void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.#ask(cursor);
      yield page.results;
      // Only the cursor is taken from the link, so that the API key is never sent to another address.
      cursor = page.next === null ? undefined : (new URL(page.next, "http://any").searchParams.get("cursor") ?? undefined);
    } while (cursor !== undefined);
  }

  /** Return the first item, or undefined of an empty list. */
  async first(): Promise<Item | undefined> {
    return (await this.#ask()).results[0];
  }
}
