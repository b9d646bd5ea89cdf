/** A page of a list, as the server answers it. */
export interface Page<Item> {
  readonly results: Item[];
  readonly next: string | null;
}

/** The items of a list. Each iteration begins with the first page, and requests the next page when it is needed. */
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

  /** Return the first item, or undefined if the list is empty. */
  async first(): Promise<Item | undefined> {
    return (await this.#ask()).results[0];
  }
}

/** How long a reader of the feed pauses before the next request, if the server did not wait. */
const PAUSE_MS = 1_000;

/** Entries of all holders as they are recorded, for ever. */
export class Feed<Item> implements AsyncIterable<Item> {
  readonly #ask: (after: string) => Promise<Page<Item>>;
  #position: string;

  constructor(ask: (after: string) => Promise<Page<Item>>, after: string) {
    this.#ask = ask;
    this.#position = after;
  }

  /** The position to continue from: in `pages`, after the current page; otherwise, after the last finished page. */
  get position(): string {
    return this.#position;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for (;;) {
      const [items, following] = await this.#read();
      yield* items;
      this.#position = following;
    }
  }

  /** Yield page after page as they come, without empty pages; `limit` is the largest size of a page. */
  async *pages(): AsyncGenerator<Item[], void, undefined> {
    for (;;) {
      const [items, following] = await this.#read();
      this.#position = following;
      if (items.length > 0) {
        yield items;
      }
    }
  }

  async #read(): Promise<[Item[], string]> {
    const began = performance.now();
    const page = await this.#ask(this.#position);
    if (page.results.length === 0 && performance.now() - began < PAUSE_MS) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    // Only the place is taken from the link, so that the API key is never sent to another address.
    return [page.results, new URL(page.next ?? "", "http://any").searchParams.get("after") ?? this.#position];
  }
}
