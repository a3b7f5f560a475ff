/*!
 * \brief Doubler
 * \details Doubles
 * each number.
 * \par EAGLE_START
 * \param category DynlibApp
 * \param construct Scatter
 * \param[in] libpath libdoubler.so/String/ComponentParameter/NoPort/ReadOnly//False/False/Library
 * \param[in] unit "m/s"/Select/ApplicationArgument/NoPort/ReadWrite/"m/s,c"/False/True/The unit, such
 *            as m/s
 * \param[in] numbers /Object/ApplicationArgument/InputPort/ReadWrite//False/False/What is doubled
 * \param[in] old 5/Integer/NoPort
 * \param[in] count x/Integer/ApplicationArgument/NoPort/ReadWrite//False/False/Not a number
 * \par EAGLE_END
 */
int run(void) { return 0; }

/*! \brief Not a node. */
/** \brief Nothing
    \par EAGLE_START
    \param category Spaceship
    \par EAGLE_END */
