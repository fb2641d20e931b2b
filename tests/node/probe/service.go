package main

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	stock       = 64 << 20 // bytes that requests are answered from, more than caches hold
	outstanding = 4096     // requests at a time; what would be more fails
)

// serve answers each request with the hash of so many KiB, from a place of its own in what is held.
func serve(kib int) {
	held := make([]byte, stock)
	for place := range held {
		held[place] = byte(rand.Uint32())
	}
	size := kib << 10
	http.ListenAndServe(":8080", http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		start := rand.IntN(stock - size)
		sum := sha256.Sum256(held[start : start+size])
		answer.Write(sum[:])
	}))
}

// load asks so often a second, whatever is answered, and prints how long answers took from when they were due.
func load(url string, rate int, long time.Duration) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: outstanding}}
	count := rate * int(long/time.Second)
	took, failed := make([]time.Duration, 0, count), 0
	var lock sync.Mutex
	var asked sync.WaitGroup
	slots := make(chan struct{}, outstanding)
	begun := time.Now()
	for index := range count {
		due := begun.Add(time.Duration(index) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			ok := ask(client, url)
			lock.Lock()
			defer lock.Unlock()
			if ok {
				took = append(took, time.Since(due))
			} else {
				failed++
			}
		})
	}
	asked.Wait()
	elapsed := time.Since(begun)
	slices.Sort(took)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"failed":     float64(failed),
		"per_second": float64(len(took)) / elapsed.Seconds(),
		"p50_ms":     quantile(took, 0.5),
		"p99_ms":     quantile(took, 0.99),
	})
}

func ask(client *http.Client, url string) bool {
	answer, err := client.Get(url)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK
}

// quantile of sorted times, in milliseconds; 0 of none.
func quantile(took []time.Duration, share float64) float64 {
	if len(took) == 0 {
		return 0
	}
	place := min(len(took)-1, int(share*float64(len(took))))
	return float64(took[place]) / float64(time.Millisecond)
}
