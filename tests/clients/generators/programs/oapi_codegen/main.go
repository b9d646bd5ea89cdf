// What every generated client does, with the one of oapi-codegen.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"ledger.example/client/api"
)

type result struct {
	Balances  []int64  `json:"balances"`
	Shortfall int64    `json:"shortfall"`
	Failed    int      `json:"failed"`
	Kinds     []string `json:"kinds"`
}

func amount(value int64) *int64 { return &value }

func must[Done any](done Done, err error) Done {
	if err != nil {
		log.Fatal(err)
	}
	return done
}

func balance(entry *api.Entry, body []byte) int64 {
	if entry == nil {
		log.Fatalf("%s", body)
	}
	return entry.Balance
}

func main() {
	holder, background := os.Args[1], context.Background()
	key := func(name string) *string {
		found := holder + "-" + name
		return &found
	}
	client := must(api.NewClientWithResponses(os.Getenv("LEDGER_URL"), api.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+os.Getenv("LEDGER_API_KEY"))
			return nil
		})))
	granted := must(client.GrantCreditsWithResponse(background, holder,
		&api.GrantCreditsParams{IdempotencyKey: key("grant")}, api.Grant{Amount: 100}))
	spent := must(client.SpendCreditsWithResponse(background, holder,
		&api.SpendCreditsParams{IdempotencyKey: key("spend")}, api.Spend{Amount: amount(30)}))
	refused := must(client.SpendCreditsWithResponse(background, holder,
		&api.SpendCreditsParams{IdempotencyKey: key("refused")}, api.Spend{Amount: amount(1000)}))
	if refused.ApplicationproblemJSON402 == nil {
		log.Fatalf("%s", refused.Body)
	}
	refunded := must(client.RefundSpendWithResponse(background, holder,
		&api.RefundSpendParams{IdempotencyKey: key("refund")}, api.Refund{Spend: spent.JSON201.Sequence, Amount: amount(10)}))
	held := must(client.HoldCreditsWithResponse(background, holder,
		&api.HoldCreditsParams{IdempotencyKey: key("hold")}, api.Hold{Amount: amount(20)}))
	captured := must(client.CaptureHoldWithResponse(background, holder, held.JSON201.Sequence,
		&api.CaptureHoldParams{IdempotencyKey: key("capture")}, api.Capture{Amount: amount(15)}))
	operations := make([]api.BatchOperation, 2)
	if err := operations[0].FromGrantOperation(api.GrantOperation{Holder: holder, Amount: 5}); err != nil {
		log.Fatal(err)
	}
	if err := operations[1].FromSpendOperation(api.SpendOperation{Holder: holder, Amount: amount(3)}); err != nil {
		log.Fatal(err)
	}
	batch := must(client.RunBatchWithResponse(background,
		&api.RunBatchParams{IdempotencyKey: key("batch")}, api.Batch{Mode: api.Atomic, Operations: operations}))
	if batch.JSON200 == nil {
		log.Fatalf("%s", batch.Body)
	}
	page := must(client.ListEntriesWithResponse(background, holder, &api.ListEntriesParams{}))
	// One of the problems that this call may have with 402.
	insufficient := must(refused.ApplicationproblemJSON402.AsInsufficientCredits())
	found := result{Shortfall: insufficient.Shortfall, Failed: batch.JSON200.Failed}
	for _, entry := range page.JSON200.Results {
		found.Kinds = append(found.Kinds, string(entry.Kind))
	}
	found.Balances = []int64{
		balance(granted.JSON201, granted.Body), balance(spent.JSON201, spent.Body), balance(refunded.JSON201, refunded.Body),
		balance(held.JSON201, held.Body), balance(captured.JSON201, captured.Body),
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
