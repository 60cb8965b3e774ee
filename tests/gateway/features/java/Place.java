// RabbitMQ's stream client for Java doing what walks.py asks for: README.md has what it prints.

import com.rabbitmq.stream.Address;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.EnvironmentBuilder;
import com.rabbitmq.stream.Message;
import com.rabbitmq.stream.impl.Client;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.File;
import java.nio.charset.StandardCharsets;

// Where it connects to, how, and what the messages are.
final class Place {
    final String host;
    final int port;
    final String prefix;
    final int count;
    final String authority;

    Place(String host, String port, String prefix, String count, String authority) {
        this.host = host;
        this.port = Integer.parseInt(port);
        this.prefix = prefix;
        this.count = Integer.parseInt(count);
        this.authority = authority;
    }

    private SslContext tls() throws Exception {
        SslContextBuilder tls = SslContextBuilder.forClient().trustManager(new File(authority));
        return tls.endpointIdentificationAlgorithm("HTTPS").build();  // checks the name in the certificate
    }

    Client client() throws Exception {
        Client.ClientParameters parameters = new Client.ClientParameters().host(host).port(port);
        return new Client(authority.isEmpty() ? parameters : parameters.sslContext(tls()));
    }

    Environment open() throws Exception {
        EnvironmentBuilder builder = Environment.builder().host(host).port(port);
        if (!authority.isEmpty()) {
            builder.addressResolver(address -> new Address(host, port))
                .maxConsumersByConnection(1)
                .maxTrackingConsumersByConnection(1)
                .maxProducersByConnection(1)
                .requestedMaxFrameSize(8 * 1024)
                .tls().sslContext(tls());
        }
        return builder.build();
    }

    static String text(String kind, int number) {
        return kind + " " + number + " " + "x".repeat(900 + number % 97);
    }

    static String textOf(Message message) {
        return new String(message.getBodyAsBinary(), StandardCharsets.UTF_8);
    }

    static String regionOf(Message message) {
        return message.getApplicationProperties().get("region").toString();
    }
}
