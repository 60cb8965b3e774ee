// Partitions that RabbitMQ's stream client for Go chooses: a key a line in, in UTF-8, its partition a line out.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	partitions := make([]string, count)
	for i := range partitions {
		partitions[i] = strconv.Itoa(i)
	}
	routing := stream.NewHashRoutingStrategy(func(m message.StreamMessage) string {
		return string(m.GetData()[0])
	})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		found, err := routing.Route(amqp.NewMessage([]byte(lines.Text())), partitions)
		if err != nil {
			panic(err)
		}
		fmt.Println(found[0])
	}
}
