// RabbitMQ's own stream client publishing to a super stream, told what to publish on stdin, telling what was confirmed.
//
//     java -cp … StockProducer URI SUPER_STREAM ID PADDING
//     in    KEY FROM TO     publish the key's messages FROM up to, not including, TO
//     out   KEY NUMBER      that message is confirmed
//
// A message is KEY/NUMBER/ID: and padding. At the end of its input it waits for what is not confirmed, and ends.

import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.Producer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.Phaser;

public final class StockProducer {
    public static void main(String[] arguments) throws Exception {
        String id = arguments[2];
        int padding = Integer.parseInt(arguments[3]);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Phaser unconfirmed = new Phaser(1);
        // Without the instance's number: a program that connects again has the name that it had.
        String name = id.substring(0, id.lastIndexOf('-'));
        try (Environment environment = Environment.builder().uri(arguments[0]).id(name).build()) {
            Producer producer = environment.producerBuilder()
                .superStream(arguments[1])
                .routing(message -> message.getProperties().getMessageIdAsString())
                .producerBuilder()
                .confirmTimeout(Duration.ZERO)
                .build();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                for (long number = Long.parseLong(words[1]); number < Long.parseLong(words[2]); number++) {
                    String told = words[0] + " " + number;
                    byte[] head = (words[0] + "/" + number + "/" + id + ":").getBytes(StandardCharsets.UTF_8);
                    byte[] body = Arrays.copyOf(head, head.length + padding);
                    unconfirmed.register();
                    producer.send(
                        producer.messageBuilder().properties().messageId(words[0]).messageBuilder().addData(body).build(),
                        status -> {
                            String result = status.isConfirmed() ? told : "refused " + told + " " + status.getCode();
                            synchronized (out) {
                                out.print(result + "\n");
                                out.flush();
                            }
                            unconfirmed.arriveAndDeregister();
                        });
                }
            }
            unconfirmed.arriveAndAwaitAdvance();
            producer.close();
        }
        System.exit(0);
    }
}
