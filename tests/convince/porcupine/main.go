// Command judge says whether a recorded history of accounts could have come from one that answers one request after the other,
// each at an instant between its call and its return (linearizability). The checker is Porcupine; only the account is ours.
//
//	judge HISTORY    a file with a line of JSON for each operation
//
// It prints "linearizable", "not linearizable" or "undecided", and ends with 0, 1 or 2.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"time"

	"github.com/anishathalye/porcupine"
)

// Limit is how long the checker may look for an order.
const Limit = 2 * time.Minute

// Operation is a line of the history. It begins when a client first sends a request, and ends with the first answer to it or to a
// repetition: if the answer to an earlier try was lost, that try may have taken effect at any time between.
type Operation struct {
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	Holder string `json:"holder"`
	Asked
	Answer
}

// Asked is what a client wants: a grant, spend, hold, capture, release, refund, or to read the balance.
type Asked struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Amount int64  `json:"amount"`
	// Of is the key of the spend that is refunded, or of the hold that is captured or released.
	Of string `json:"of"`
}

// Answer is what the client was told: "granted", "refused" or "read". The numbers are those after the operation.
type Answer struct {
	Outcome  string `json:"outcome"`
	Sequence int64  `json:"sequence"`
	Balance  int64  `json:"balance"`
	Held     int64  `json:"held"`
}

// account is the state: the credits that are not held, those that are, and what every key was answered and has left to give back.
type account struct {
	balance, held, sequence int64
	answers                 map[string]Answer
	left                    map[string]int64
}

func (now account) with(asked Asked, answer Answer, balance, held int64, left map[string]int64) account {
	next := account{now.balance + balance, now.held + held, max(now.sequence, answer.Sequence), maps.Clone(now.answers), maps.Clone(now.left)}
	next.answers[asked.Key] = answer
	maps.Copy(next.left, left)
	return next
}

// decide returns the account after a request that is new to it, and whether it is granted.
func (now account) decide(asked Asked, answer Answer) (account, bool) {
	left := now.left[asked.Of]
	switch asked.Kind {
	case "grant":
		return now.with(asked, answer, asked.Amount, 0, nil), true
	case "spend":
		if now.balance >= asked.Amount {
			return now.with(asked, answer, -asked.Amount, 0, map[string]int64{asked.Key: asked.Amount}), true
		}
	case "hold":
		if now.balance >= asked.Amount {
			return now.with(asked, answer, -asked.Amount, asked.Amount, map[string]int64{asked.Key: asked.Amount}), true
		}
	case "capture":
		if left > 0 {
			return now.with(asked, answer, 0, -left, map[string]int64{asked.Of: 0}), true
		}
	case "release":
		if left > 0 {
			return now.with(asked, answer, left, -left, map[string]int64{asked.Of: 0}), true
		}
	case "refund":
		if left > 0 {
			return now.with(asked, answer, left, 0, map[string]int64{asked.Of: 0}), true
		}
	default:
		panic("unknown kind " + asked.Kind)
	}
	return now.with(asked, answer, 0, 0, nil), false
}

// step says whether an account may answer this now, and what it is afterwards.
func step(state, input, output any) (bool, any) {
	now, asked, answer := state.(account), input.(Asked), output.(Answer)
	if asked.Kind == "read" {
		return answer.Balance == now.balance && answer.Held == now.held && answer.Sequence >= now.sequence, now
	}
	if earlier, isKnown := now.answers[asked.Key]; isKnown {
		return answer == earlier, now
	}
	next, isGranted := now.decide(asked, answer)
	if answer.Outcome == "refused" {
		return !isGranted, next
	}
	return isGranted && answer.Sequence > now.sequence && answer.Balance == next.balance && answer.Held == next.held, next
}

func main() {
	byHolder, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	model := porcupine.Model{
		Init:  func() any { return account{answers: map[string]Answer{}, left: map[string]int64{}} },
		Step:  step,
		Equal: func(one, other any) bool { return reflect.DeepEqual(one, other) },
	}
	for holder, operations := range byHolder {
		switch porcupine.CheckOperationsTimeout(model, operations, Limit) {
		case porcupine.Illegal:
			fmt.Println("not linearizable:", holder)
			os.Exit(1)
		case porcupine.Unknown:
			fmt.Println("undecided:", holder)
			os.Exit(2)
		}
	}
	fmt.Println("linearizable")
}

// read returns the operations of each holder. Accounts share nothing, so each is judged alone.
func read(name string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	byHolder := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line Operation
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		operation := porcupine.Operation{ClientId: line.Client, Input: line.Asked, Call: line.Call, Output: line.Answer, Return: line.Return}
		byHolder[line.Holder] = append(byHolder[line.Holder], operation)
	}
	return byHolder, lines.Err()
}
