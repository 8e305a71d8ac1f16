module example.org/harbour/service

go 1.19

require (
	github.com/dgrijalva/jwt-go v3.2.0+incompatible
	golang.org/x/text v0.3.0
)
