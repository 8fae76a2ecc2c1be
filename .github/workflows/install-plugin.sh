# slime-core comes from where SLIME_CORE says, never by bare name from an index: there its name is another project's.
case "$SLIME_CORE" in
  *.txt) core=(-c "$SLIME_CORE" slime-core) ;; # the slime.txt of a release: an address and a hash for each package
  */* | .) core=("$SLIME_CORE") ;;
  *)
    echo "SLIME_CORE is '$SLIME_CORE'; expected the slime.txt of a release, or by a path such as ./wheels or an address: a folder of its wheels, a wheel, a checkout" >&2
    exit 2
    ;;
esac
# Its other packages, slime-testing among them, come from the same place.
found=$(mktemp -d)/slime.txt
constrain() { echo "$1 @ $(python -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).resolve().as_uri())' "$2")" >>"$found"; }
if compgen -G "$SLIME_CORE/slime_core-*.whl" >/dev/null; then
  for wheel in "$SLIME_CORE"/slime_*.whl; do
    name=${wheel##*/}
    constrain "${name%%-*}" "$wheel"
  done
  core=(-c "$found" slime-core)
elif [ -d "$SLIME_CORE/plugins" ]; then
  for folder in "$SLIME_CORE"/plugins/slime-*/; do constrain "$(basename "$folder")" "$folder"; done
  core=(-c "$found" "$SLIME_CORE")
elif [[ $SLIME_CORE == git+* ]]; then
  for name in slime-testing slime-train; do echo "$name @ ${SLIME_CORE%%#*}#subdirectory=plugins/$name" >>"$found"; done
  core=(-c "$found" "$SLIME_CORE")
elif [[ $SLIME_CORE == */slime_core-*.whl* ]]; then
  beside=${SLIME_CORE%%#*}
  for name in slime_testing slime_train; do
    wheel=${beside/slime_core-/$name-}
    if [ -e "$wheel" ]; then constrain "$name" "$wheel"; else echo "$name @ $wheel" >>"$found"; fi
  done
  core=(-c "$found" "$SLIME_CORE")
fi
python -m pip install "${core[@]}" -e "$PACKAGE${EXTRAS:+[$EXTRAS]}"
