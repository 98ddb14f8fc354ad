package lakefeed;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IOUtils;

/**
 * Commits of Spark's Delta to S3 that replace no commit of another writer.
 *
 * <p>Delta's own log store for S3 looks whether an entry of the log exists, and then writes it, whatever has
 * come in between. This one lets S3 decide, with the header If-None-Match. Needs Hadoop 3.4.2 or later, and
 * fails with an older one. The entry says in its metadata how it was made, so that `lakefeed plan` is content.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
  public ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
      throws IOException {
    if (overwrite.booleanValue()) {
      super.write(path, actions, overwrite, conf);
      return;
    }
    byte[] entry = join(actions);
    FileSystem store = path.getFileSystem(conf);
    try {
      // "must", not "opt": a Hadoop that does not know the option is to say so.
      FSBuilder<?, ?> file =
          store
              .createFile(path)
              .overwrite(false)
              .must("fs.option.create.conditional.overwrite", true)
              .opt("fs.s3a.create.header.lakefeed-commit", "conditional");
      OutputStream out = (OutputStream) file.build();
      out.write(entry);
      out.close();
    } catch (IOException error) {
      // After a lost answer the client asks again, and what it is told then is about its own entry.
      if (!store.exists(path)) {
        throw error;
      }
      if (!Arrays.equals(read(store, path), entry)) {
        throw new FileAlreadyExistsException(path.toString());
      }
    }
  }

  private static byte[] join(Iterator<String> actions) {
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append(actions.next()).append('\n');
    }
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] read(FileSystem store, Path path) throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    IOUtils.copyBytes(store.open(path), content, 65536, true);
    return content.toByteArray();
  }
}
