// The service that hands out berths. It says when a berth is free, in the language of whoever asks.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/dgrijalva/jwt-go"
	"golang.org/x/text/language"
)

var matcher = language.NewMatcher([]language.Tag{language.English, language.German, language.Dutch})

func berth(w http.ResponseWriter, r *http.Request) {
	token, err := jwt.Parse(r.Header.Get("X-Pass"), func(*jwt.Token) (interface{}, error) {
		return []byte(os.Getenv("PASS_KEY")), nil
	})
	if err != nil || !token.Valid {
		http.Error(w, "no pass", http.StatusForbidden)
		return
	}
	tag, _ := language.MatchStrings(matcher, r.Header.Get("Accept-Language"))
	fmt.Fprintf(w, "%s: berth 4 is free\n", tag)
}

func main() {
	http.HandleFunc("/berth", berth)
	_ = http.ListenAndServe("127.0.0.1:8090", nil)
}
