import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.*;
import org.apache.kafka.connect.storage.*;
import org.apache.kafka.connect.transforms.Transformation;

/** Gives messages to the classes that consume them, as a Connect worker does. Arguments: flatten|apply, then NAME=VALUE of its configuration.
 *  Standard input: a line {"topic", "key", "value"} for each message. `flatten` prints a line {"value", "headers"} or {"error"} for each. */
public class Consumers {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        String schemas = settings.getOrDefault("schemas", "false");
        settings.remove("schemas");
        Converter keys = converter(schemas, true), values = converter(schemas, false);
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        List<SinkRecord> records = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode message = JSON.readTree(line);
            String topic = message.get("topic").asText();
            SchemaAndValue key = keys.toConnectData(topic, bytes(message.get("key")));
            SchemaAndValue value = values.toConnectData(topic, bytes(message.get("value")));
            records.add(new SinkRecord(topic, 0, key.schema(), key.value(), value.schema(), value.value(), records.size()));
        }
        if (arguments[0].equals("flatten")) flatten(records, settings, out);
        else apply(records, settings, out);
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    /** `schemas`: true or false, of the converter of JSON; none: the one of text. */
    static Converter converter(String schemas, boolean key) {
        Converter made = schemas.equals("none") ? new StringConverter() : new JsonConverter();
        made.configure(schemas.equals("none") ? Map.of() : Map.of("schemas.enable", schemas), key);
        return made;
    }

    @SuppressWarnings("unchecked")
    static void flatten(List<SinkRecord> records, Map<String, String> settings, PrintStream out) throws Exception {
        Transformation<SinkRecord> transformation = (Transformation<SinkRecord>)
            Class.forName("io.debezium.connector.mongodb.transforms.ExtractNewDocumentState").getDeclaredConstructor().newInstance();
        transformation.configure(settings);
        Converter plain = converter("false", false);
        for (SinkRecord record : records) {
            ObjectNode told = JSON.createObjectNode();
            try {
                SinkRecord found = transformation.apply(record);
                told.put("dropped", found == null);
                if (found != null) {
                    byte[] value = plain.fromConnectData(found.topic(), found.valueSchema(), found.value());
                    told.set("value", value == null ? NullNode.instance : JSON.readTree(value));
                    byte[] key = plain.fromConnectData(found.topic(), found.keySchema(), found.key());
                    told.set("key", key == null ? NullNode.instance : JSON.readTree(key));
                }
            } catch (Exception error) {
                told.put("error", String.valueOf(error));
            }
            out.println(JSON.writeValueAsString(told));
        }
    }

    static void apply(List<SinkRecord> records, Map<String, String> settings, PrintStream out) throws Exception {
        SinkTask task = (SinkTask) Class.forName("com.mongodb.kafka.connect.sink.MongoSinkTask").getDeclaredConstructor().newInstance();
        task.initialize((SinkTaskContext) java.lang.reflect.Proxy.newProxyInstance(Consumers.class.getClassLoader(),
            new Class<?>[] {SinkTaskContext.class}, (context, method, values) -> method.getName().equals("configs") ? settings : null));
        task.start(settings);
        try {
            task.put(records);
            out.println("applied " + records.size());
        } catch (Exception error) {
            Throwable cause = error;
            StringBuilder said = new StringBuilder();
            for (; cause != null; cause = cause.getCause()) said.append(" / ").append(cause);
            out.println("error" + said);
        } finally {
            task.stop();
        }
    }
}
