// One story per job and page, however many components show it. A story that nobody has shown for a while is let go.
import { Story, type StoryOptions } from "../view/story.ts";

const stories = new Map<string, { story: Story; users: number; leaving: ReturnType<typeof setTimeout> | undefined }>();
const KEEP_MS = 30_000;

/** The story of this job, made when there is none. It is held from `hold` on. */
export function sharedStory(options: Pick<StoryOptions, "id" | "server" | "token">): Story {
  // What a server renders is for one request, and shared with none.
  if (globalThis.document === undefined) return new Story(options);
  const key = keyOf(options);
  let entry = stories.get(key);
  if (!entry) {
    entry = { story: new Story(options), users: 0, leaving: undefined };
    stories.set(key, entry);
    // A component that was begun and never shown holds nothing.
    letGo(key);
  }
  return entry.story;
}

/** Answers how to let it go. */
export function hold(story: Story): () => void {
  const key = keyOf(story);
  const entry = stories.get(key);
  // One that was let go between the drawing and the holding of it is shared again.
  const held = entry?.story === story ? entry : { story, users: 0, leaving: undefined };
  stories.set(key, held);
  clearTimeout(held.leaving);
  held.users += 1;
  return () => {
    held.users -= 1;
    if (held.users === 0) letGo(key);
  };
}

function letGo(key: string): void {
  const entry = stories.get(key);
  if (!entry) return;
  clearTimeout(entry.leaving);
  entry.leaving = setTimeout(() => {
    if (entry.users > 0) return;
    entry.story.close();
    if (stories.get(key) === entry) stories.delete(key);
  }, KEEP_MS);
}

/** A function that gives tokens is another one each time a component is drawn, and means the same. */
function keyOf({ id, server = "", token }: Pick<StoryOptions, "id" | "server" | "token">): string {
  return JSON.stringify([server, id, typeof token === "function" ? true : (token ?? null)]);
}
