// What the pods of the tests run: waits, or burns CPU, or fills memory. Without arguments it is a pod's pause container.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const step = 1 << 20

func main() {
	amount := 1
	if len(os.Args) > 2 {
		given, err := strconv.Atoi(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, "usage: probe [pause | burn THREADS | hold MIB]")
			os.Exit(2)
		}
		amount = given
	}
	if len(os.Args) > 1 && os.Args[1] == "burn" {
		for range amount {
			go func() {
				for {
				}
			}()
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		go hold(amount)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}

// hold takes a MiB every 10 ms, and touches every page of it.
func hold(mib int) {
	held := make([][]byte, 0, mib)
	for range mib {
		piece := make([]byte, step)
		for offset := 0; offset < step; offset += 4096 {
			piece[offset] = 1
		}
		held = append(held, piece)
		time.Sleep(10 * time.Millisecond)
	}
	select {}
}
