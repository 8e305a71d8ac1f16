// Program of the memory test: transcribes one file and prints the peak memory of this process and the texts.
import { transcribe } from "../../src/asr/index.ts";

const [file, ffmpeg, scratch] = process.argv.slice(2) as [string, string, string];
const { segments, seconds } = await transcribe(file, { ffmpeg, scratch, model: "tiny" });
// maxRSS is in kilobytes.
console.log(JSON.stringify({ peakMb: process.resourceUsage().maxRSS / 1024, seconds, segments: segments.length }));
