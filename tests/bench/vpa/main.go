// Times the decaying histograms of the Vertical Pod Autoscaler: one sample into each, and percentiles of each.
//
// Its arguments are the number of histograms, of percentiles, and of rounds. Its answer is the CPU seconds of the best
// round of each: what else the machine does only ever adds.
package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
)

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func best(rounds int, work func(round int)) float64 {
	least := math.Inf(1)
	for round := range rounds {
		before := cpuSeconds()
		work(round)
		least = min(least, cpuSeconds()-before)
	}
	return least
}

func main() {
	var given [3]int
	for index := range given {
		number, err := strconv.Atoi(os.Args[index+1])
		if err != nil {
			panic(err)
		}
		given[index] = number
	}
	histograms, percentiles, rounds := given[0], given[1], given[2]
	options, err := util.NewExponentialHistogramOptions(1000, 0.01, 1.05, 0.0001)
	if err != nil {
		panic(err)
	}
	bank := make([]util.Histogram, histograms)
	for index := range bank {
		bank[index] = util.NewDecayingHistogram(options, 12*time.Hour)
	}
	start := time.Unix(1_700_000_000, 0)
	updates := best(rounds, func(round int) {
		moment := start.Add(time.Duration(round) * 30 * time.Second)
		for index, each := range bank {
			each.AddSample(0.01+float64((index*7919+round*104729)%40_000)/10_000, 1, moment)
		}
	})
	sum := 0.0
	reads := best(rounds, func(int) {
		for _, each := range bank {
			for step := range percentiles {
				sum += each.Percentile(float64(step+1) / float64(percentiles+1))
			}
		}
	})
	fmt.Println(updates, reads, sum)
}
