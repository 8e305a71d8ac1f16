#!/bin/sh
# Makes harbour.mp4: 24 seconds, 640x360, synthetic speech. Needs ffmpeg and espeak-ng.
set -eu
cd "$(dirname "$0")"
speech=$(mktemp)
trap 'rm -f "$speech"' EXIT
espeak-ng -v en-us -s 140 -w "$speech" "Welcome to the harbour. In the morning the boats leave the quay one after another. The water is calm, and the light is low. At noon the market opens, and people buy fish and bread. In the evening all boats come home. Thank you for watching this short film."
# A sky and a sea, a moving boat, and the time.
picture="color=c=0x1c3d5a:s=640x360:r=25:d=24[sky];color=c=0x155e75:s=640x140:r=25:d=24[sea];color=c=0xd97706:s=120x28:r=25:d=24[boat]"
moving="[sky][sea]overlay=0:220[scene];[scene][boat]overlay=x='mod(40*t,760)-120':y='206+6*sin(2*t)'[sailing]"
time="[sailing]drawtext=text='%{pts\:hms}':fontcolor=white:fontsize=28:x=24:y=24[v]"
ffmpeg -hide_banner -v error -y -i "$speech" -filter_complex "$picture;$moving;$time;[0:a]adelay=800,apad[a]" -map "[v]" -map "[a]" -t 24 \
  -c:v libx264 -preset veryslow -crf 26 -g 50 -pix_fmt yuv420p -c:a aac -ac 1 -ar 24000 -b:a 48k -map_metadata -1 -movflags +faststart harbour.mp4
